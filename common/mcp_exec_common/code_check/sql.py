"""Whether a call sends a query into whose text values were put: by an f-string, `%`, `+` or `format`."""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

_TOOLS: Final = frozenset({"executesql", "query", "execute"})
"""What takes SQL, in lower case and without underscores: tools, and the methods of database modules."""
_ARGUMENTS: Final = frozenset({"query", "sql", "statement"})
_CALL: Final = frozenset({"call_mcp_tool", "client.call_mcp_tool"})
_NUMBERS: Final = frozenset({"int", "float", "len"})
"""What makes a value that can't be anything but a number."""
_SQL: Final = re.compile(
    r"[\s(]*(select|insert|update|delete|with|create|alter|drop|truncate|merge|replace|grant|explain|call)\s", re.I
)
_MOST_VALUES: Final = 20
"""Of a name that is set more often, the first values are looked at."""


class Bindings:
    """What the names of a program are set to. Scopes are not told apart."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._values: dict[str, list[ast.expr]] = {}
        self.judged: dict[int | str, bool] = {}
        """What is known already of expressions and names, so that each is judged once."""
        self._others: set[str] = set()
        """Names that get a value otherwise too: parameters, loops, `with`."""
        plain: set[int] = set()
        for node in nodes:
            # parents come before their children
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        plain.add(id(target))
                        self._values.setdefault(target.id, []).append(node.value)
            elif isinstance(node, ast.arg):
                self._others.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in plain:
                self._others.add(node.id)
        self._constants = {
            name
            for name, values in self._values.items()
            if name not in self._others and all(isinstance(each, ast.Constant) for each in values)
        }

    def of(self, name: str) -> list[ast.expr]:
        """The expressions that a name is set to, or that are added to it."""
        return self._values.get(name, [])[:_MOST_VALUES]

    def only(self, name: str) -> ast.expr | None:
        """The expression that a name is set to, where there is but one and nothing else sets it."""
        values = self._values.get(name, [])
        return values[0] if len(values) == 1 and name not in self._others else None

    def is_constant(self, node: ast.expr) -> bool:
        """Whether an expression is the same whatever the data: a literal, or a name that has but literals."""
        return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in self._constants)


def formatted_sql(call: ast.Call, *, called: str, bindings: Bindings) -> bool:
    """Whether the call, of what has that dotted name, sends SQL with values in its text."""
    return any(_has_values(query, bindings) for query in _queries(call, called, bindings))


def _queries(call: ast.Call, called: str, bindings: Bindings) -> Iterator[ast.expr]:
    """The arguments that may be queries."""
    given = list(call.args)
    # the receiver may be any expression: connect().execute(...)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else called.rpartition(".")[2]
    if called in _CALL and given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str):
        name = re.split(r"__|\.", given.pop(0).value)[-1]  # type: ignore[attr-defined]
    if name.lower().replace("_", "") not in _TOOLS:
        return
    yield from (each.value for each in call.keywords if each.arg in _ARGUMENTS)
    inputs = [*given[:1], *(each.value for each in call.keywords if each.arg == "input")]
    for each in inputs:
        for value in bindings.of(each.id) if isinstance(each, ast.Name) else [each]:
            if isinstance(value, ast.Dict):
                yield from _entries(value)
        yield each


def _entries(node: ast.Dict) -> Iterator[ast.expr]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value in _ARGUMENTS:
            yield value


def _has_values(node: ast.expr, bindings: Bindings) -> bool:
    """Whether an expression is SQL with values in its text."""
    key = node.id if isinstance(node, ast.Name) else id(node)
    if key not in bindings.judged:
        bindings.judged[key] = False  # where a name leads back to itself
        bindings.judged[key] = _judge(node, bindings)
    return bindings.judged[key]


def _judge(node: ast.expr, bindings: Bindings) -> bool:
    options = bindings.of(node.id) if isinstance(node, ast.Name) else [node]
    pieces = [list(_pieces(each, bindings)) for each in options]
    # a text may be built in steps: its first words in one, a value in another
    begins = any(_SQL.match("".join(each if isinstance(each, str) else "?" for each in parts)) for parts in pieces)
    values = [each for parts in pieces for each in parts if not isinstance(each, str)]
    if begins and any(not _is_same_name(each, node) for each in values):
        return True
    return any(_has_values(each, bindings) for each in options if isinstance(each, ast.Name))


def _is_same_name(one: ast.expr, other: ast.expr) -> bool:
    """`text = text + ...`: what it was before is judged by itself."""
    return isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id


def _pieces(node: ast.expr, bindings: Bindings) -> Iterator[str | ast.expr]:
    """A text's parts in order: constant text, and the values that are put between."""
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.JoinedStr):
            todo += reversed(part.values)
        elif isinstance(part, ast.FormattedValue):
            yield "?" if _is_harmless(part.value, bindings) else part.value
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
            todo += [part.right, part.left]
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
            yield from _filled(part.left, [part.right], bindings)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "format":
            yield from _filled(part.func.value, [*part.args, *(each.value for each in part.keywords)], bindings)
        elif isinstance(part, ast.Call) and _keeps_text(part):
            todo.append(part.args[0] if part.args else part.func.value)  # type: ignore[attr-defined]
        elif (text := _text(part, bindings)) is not None:
            yield text
        else:
            yield "?" if _is_harmless(part, bindings) else part


def _filled(template: ast.expr, values: list[ast.expr], bindings: Bindings) -> Iterator[str | ast.expr]:
    yield _text(template, bindings) or "?"
    yield from values


def _keeps_text(call: ast.Call) -> bool:
    """`text.strip()`, `dedent(text)`, `textwrap.dedent(text)`: the same text."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "strip":
        return not call.args
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "dedent" and len(call.args) == 1


def _text(node: ast.expr, bindings: Bindings) -> str | None:
    """The constant text that an expression is, or None."""
    if isinstance(node, ast.Name) and bindings.is_constant(node):
        node = bindings.of(node.id)[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_harmless(node: ast.expr, bindings: Bindings) -> bool:
    """Whether a value can't change what a query means: a constant, or a number by a built-in."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NUMBERS:
        return True
    return bindings.is_constant(node)
