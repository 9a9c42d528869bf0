"""Estimates of what code needs, from its text: loops that never end, and values larger than memory."""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mcp_exec_common.code_check.sql import Bindings

_POINTER_BYTES: Final = 8
"""Bytes of one element of a list or tuple in CPython, without the object that it refers to."""
_MAX_DEPTH: Final = 20
_MAX_NUMBER: Final = 1 << 62
"""Larger numbers are not computed: no memory has so many bytes."""
_EXITS: Final = frozenset({"exit", "quit", "sys.exit", "os._exit", "os.abort"})
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS: Final = (ast.stmt, ast.excepthandler, ast.match_case)
_LOOPS: Final = (ast.While, ast.For, ast.AsyncFor)
Names = Callable[[ast.expr], str]
"""Returns the dotted name of an expression, resolved by the code's imports, or an empty string if it has none."""


def find_endless_loops(tree: ast.Module, name: Names) -> Iterator[ast.While]:
    """Yield `while True` loops that only a failure ends: they contain no break, return, raise, yield or exit.

    Loops in functions do not count, because a thread or a task may run them and be cancelled. Loops in a `with` or a
    `try` do not count either, because that statement may end them.
    """
    yield from _walk_blocks(tree.body, name)


def _walk_blocks(nodes: Iterable[ast.AST], name: Names) -> Iterator[ast.While]:
    for node in nodes:
        if isinstance(node, _SCOPES):
            continue
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try | ast.TryStar):
            yield from _walk_blocks((part for part in _list_statements(node) if part not in node.body), name)
            continue
        if isinstance(node, ast.While) and _is_endless(node, name):
            yield node
        yield from _walk_blocks(_list_statements(node), name)


def _list_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements and blocks inside a statement, but no expressions, which may be nested deeply."""
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, _BLOCKS))


def _is_endless(loop: ast.While, name: Names) -> bool:
    always = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    return always and not any(_ends_loop(child, name, inner=False) for child in loop.body)


def _ends_loop(node: ast.AST, name: Names, *, inner: bool) -> bool:
    """Return whether a part of a loop's body may end the loop. `inner`: a `break` ends another loop inside it."""
    if isinstance(node, ast.Return | ast.Raise | ast.Assert):
        return True
    if isinstance(node, ast.Break):
        return not inner
    if isinstance(node, _SCOPES):
        return False
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _BLOCKS):
            if any(_exits(part, name) for part in ast.walk(child)):
                return True
        # a `break` in the `else` of a loop belongs to the loop around it
        elif _ends_loop(child, name, inner=inner or (isinstance(node, _LOOPS) and child in node.body)):
            return True
    return False


def _exits(node: ast.AST, name: Names) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(node, ast.Call) and name(node.func) in _EXITS)


class SizeEstimator:
    """Lower bounds of the sizes of values in one program."""

    def __init__(self, name: Names, bindings: Bindings) -> None:
        self._name = name
        self._bindings = bindings
        self._numbers: dict[str, int | None] = {}
        """Numbers by name, so that each is computed once."""

    def estimate_bytes(self, node: ast.expr) -> int:
        """Return a lower bound of the bytes of an expression's value; 0 if it cannot be computed from the text.

        It covers repeated texts, bytes, lists and tuples, `bytes` and `bytearray` with a size, `list`, `tuple`, `set`
        and `sorted` of a range, and comprehensions over a range. Numbers may be names with a single value.
        """
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            value, times = (node.left, node.right) if _repeated_bytes(node.left) else (node.right, node.left)
            return _repeated_bytes(value) * max(self._compute_number(times) or 0, 0)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp) and not node.generators[0].ifs:
            return _POINTER_BYTES * self._range_length(node.generators[0].iter)
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            called = self._name(node.func)
            if called in ("bytes", "bytearray"):
                return max(self._compute_number(node.args[0]) or 0, 0)
            if called in ("list", "tuple", "set", "sorted"):
                return _POINTER_BYTES * self._range_length(node.args[0])
        return 0

    def _range_length(self, iterated: ast.expr) -> int:
        """Return the number of values of a `range` of numbers; 0 for anything else."""
        if not (isinstance(iterated, ast.Call) and self._name(iterated.func) == "range" and not iterated.keywords):
            return 0
        match [self._compute_number(argument) for argument in iterated.args]:
            case [int(stop)]:
                start, step = 0, 1
            case [int(start), int(stop)]:
                step = 1
            case [int(start), int(stop), int(step)] if step:
                pass
            case _:
                return 0
        return max((stop - start + step - (1 if step > 0 else -1)) // step, 0)

    def _compute_number(self, node: ast.expr, depth: int = 0) -> int | None:
        """Return the integer value of an expression, or None if it cannot be computed or is very large."""
        if depth > _MAX_DEPTH:
            return None
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int and abs(node.value) <= _MAX_NUMBER else None
        if isinstance(node, ast.Name):
            if node.id not in self._numbers:
                self._numbers[node.id] = None  # ends the recursion if a name refers to itself
                value = self._bindings.get_single_value(node.id)
                self._numbers[node.id] = None if value is None else self._compute_number(value, depth + 1)
            return self._numbers[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = self._compute_number(node.operand, depth + 1)
            return None if operand is None else -operand
        if isinstance(node, ast.BinOp):
            left, right = self._compute_number(node.left, depth + 1), self._compute_number(node.right, depth + 1)
            return None if left is None or right is None else _compute(node.op, left, right)
        return None


def _repeated_bytes(value: ast.expr) -> int:
    """Return the bytes of one repetition of a value; 0 if it is not a text, bytes, list or tuple."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str | bytes):
        return len(value.value)
    if isinstance(value, ast.List | ast.Tuple):
        return _POINTER_BYTES * len(value.elts)
    return 0


def _compute(operator: ast.operator, left: int, right: int) -> int | None:
    match operator:
        case ast.Add():
            result = left + right
        case ast.Sub():
            result = left - right
        case ast.Mult():
            result = left * right
        case ast.LShift() if 0 <= right <= 62:
            result = left << right
        case ast.Pow() if 0 <= right <= 62 and abs(left) < 1 << 10:
            result = left**right
        case ast.FloorDiv() if right:
            result = left // right
        case _:
            return None
    return result if abs(result) <= _MAX_NUMBER else None
