"""What code would take, as far as its text tells: a loop without a way out, a value larger than memory."""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mcp_exec_common.code_check.sql import Bindings

_POINTER: Final = 8
"""Bytes of a list's or tuple's place for one value, in CPython; what stands there comes on top."""
_DEEPEST: Final = 20
_LARGEST: Final = 1 << 62
"""Numbers beyond it are not calculated: no memory holds as many bytes."""
_EXITS: Final = frozenset({"exit", "quit", "sys.exit", "os._exit", "os.abort"})
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS: Final = (ast.stmt, ast.excepthandler, ast.match_case)
_LOOPS: Final = (ast.While, ast.For, ast.AsyncFor)
Names = Callable[[ast.expr], str]
"""The dotted name that an expression stands for, by the code's imports; empty where it is none."""


def endless_loops(tree: ast.Module, name: Names) -> Iterator[ast.While]:
    """Loops `while True` that only a failure ends: nothing in them breaks, returns, raises, yields or exits.

    Loops in functions are none, which a thread or a task may run that is ended; nor are those in a `with` or a `try`
    that may be meant to end them.
    """
    yield from _endless(tree.body, name)


def _endless(nodes: Iterable[ast.AST], name: Names) -> Iterator[ast.While]:
    for node in nodes:
        if isinstance(node, _SCOPES):
            continue
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try | ast.TryStar):
            yield from _endless((part for part in _statements(node) if part not in node.body), name)
            continue
        if isinstance(node, ast.While) and _is_endless(node, name):
            yield node
        yield from _endless(_statements(node), name)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements in a statement, and what holds some. Expressions, which may be nested deeply, are none."""
    return (each for each in ast.iter_child_nodes(node) if isinstance(each, _BLOCKS))


def _is_endless(loop: ast.While, name: Names) -> bool:
    always = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    return always and not any(_leaves(each, name, inner=False) for each in loop.body)


def _leaves(node: ast.AST, name: Names, *, inner: bool) -> bool:
    """Whether a part of a loop's body may end the loop; `inner` where a loop within it is what a `break` ends."""
    if isinstance(node, ast.Return | ast.Raise | ast.Assert):
        return True
    if isinstance(node, ast.Break):
        return not inner
    if isinstance(node, _SCOPES):
        return False
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, _BLOCKS):
            if any(_exits(part, name) for part in ast.walk(each)):
                return True
        # a `break` in the `else` of a loop is that of the loop around it
        elif _leaves(each, name, inner=inner or (isinstance(node, _LOOPS) and each in node.body)):
            return True
    return False


def _exits(node: ast.AST, name: Names) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(node, ast.Call) and name(node.func) in _EXITS)


class Sizes:
    """How large the values of one program's expressions are at least."""

    def __init__(self, name: Names, bindings: Bindings) -> None:
        self._name = name
        self._bindings = bindings
        self._known: dict[str, int | None] = {}
        """Numbers that names stand for, so that each is calculated once."""

    def bytes_at_least(self, node: ast.expr) -> int:
        """Bytes that the expression's value takes at least; 0 where its text does not tell.

        Of text, bytes, lists and tuples that are repeated, `bytes` and `bytearray` of a size, `list` and the like of a
        range, and comprehensions over one; of names that stand for one number alone, too.
        """
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            value, times = (node.left, node.right) if _size(node.left) else (node.right, node.left)
            return _size(value) * max(self._number(times) or 0, 0)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp) and not node.generators[0].ifs:
            return _POINTER * self._length(node.generators[0].iter)
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            called = self._name(node.func)
            if called in ("bytes", "bytearray"):
                return max(self._number(node.args[0]) or 0, 0)
            if called in ("list", "tuple", "set", "sorted"):
                return _POINTER * self._length(node.args[0])
        return 0

    def _length(self, iterated: ast.expr) -> int:
        """How many values a `range` of numbers has; 0 for anything else."""
        if not (isinstance(iterated, ast.Call) and self._name(iterated.func) == "range" and not iterated.keywords):
            return 0
        match [self._number(each) for each in iterated.args]:
            case [int(stop)]:
                start, step = 0, 1
            case [int(start), int(stop)]:
                step = 1
            case [int(start), int(stop), int(step)] if step:
                pass
            case _:
                return 0
        return max((stop - start + step - (1 if step > 0 else -1)) // step, 0)

    def _number(self, node: ast.expr, depth: int = 0) -> int | None:
        """The whole number that it stands for, or None where the text does not tell or it is a very large one."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int and abs(node.value) <= _LARGEST else None
        if isinstance(node, ast.Name):
            if node.id not in self._known:
                self._known[node.id] = None  # while it is calculated: a name may be made of itself
                value = self._bindings.only(node.id)
                self._known[node.id] = None if value is None else self._number(value, depth + 1)
            return self._known[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            below = self._number(node.operand, depth + 1)
            return None if below is None else -below
        if isinstance(node, ast.BinOp):
            left, right = self._number(node.left, depth + 1), self._number(node.right, depth + 1)
            return None if left is None or right is None else _calculated(node.op, left, right)
        return None


def _size(value: ast.expr) -> int:
    """Bytes for each time that a value is repeated; 0 for what has no length of its own."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str | bytes):
        return len(value.value)
    if isinstance(value, ast.List | ast.Tuple):
        return _POINTER * len(value.elts)
    return 0


def _calculated(operator: ast.operator, left: int, right: int) -> int | None:
    match operator:
        case ast.Add():
            found = left + right
        case ast.Sub():
            found = left - right
        case ast.Mult():
            found = left * right
        case ast.LShift() if 0 <= right <= 62:
            found = left << right
        case ast.Pow() if 0 <= right <= 62 and abs(left) < 1 << 10:
            found = left**right
        case ast.FloorDiv() if right:
            found = left // right
        case _:
            return None
    return found if abs(found) <= _LARGEST else None
