"""Detection of calls that send SQL with values formatted into its text by an f-string, `%`, `+` or `format`."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

_MAX_VALUES: Final = 20
"""Only the first values of a name that is bound more often are considered."""


class Bindings:
    """Expressions by name. Scopes are not distinguished."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._values: dict[str, list[ast.expr]] = {}
        self._unknown: set[str] = set()
        """Names that also have values from elsewhere: parameters, loops, `with`."""
        assigned: set[int] = set()
        for node in nodes:
            # parents precede their children
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        assigned.add(id(target))
                        self._values.setdefault(target.id, []).append(node.value)
            elif isinstance(node, ast.arg):
                self._unknown.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in assigned:
                self._unknown.add(node.id)
        self._constants = {
            name
            for name, values in self._values.items()
            if name not in self._unknown and all(isinstance(value, ast.Constant) for value in values)
        }

    def get_values(self, name: str) -> list[ast.expr]:
        """Return the expressions that a name is set to or that are added to it."""
        return self._values.get(name, [])[:_MAX_VALUES]

    def get_single_value(self, name: str) -> ast.expr | None:
        """Return the only expression that a name is set to, or None if it has several or unknown values."""
        values = self._values.get(name, [])
        return values[0] if len(values) == 1 and name not in self._unknown else None

    def is_constant(self, node: ast.expr) -> bool:
        """Return whether an expression is a literal, or a name that is only set to literals."""
        return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in self._constants)


_SQL_FUNCTIONS: Final = frozenset({"executesql", "query", "execute"})
"""Tools and methods of database modules that take SQL, in lower case and without underscores."""
_SQL_ARGUMENTS: Final = frozenset({"query", "sql", "statement"})
_CALL_TOOL: Final = frozenset({"call_mcp_tool", "client.call_mcp_tool"})
_NUMBERS: Final = frozenset({"int", "float", "len"})
"""Built-ins that return only numbers."""
_SQL_START: Final = re.compile(
    r"[\s(]*(select|insert|update|delete|with|create|alter|drop|truncate|merge|replace|grant|explain|call)\s", re.I
)


@dataclass(kw_only=True, eq=False)
class FormattedSqlDetector:
    """Detects formatted SQL in the calls of one program."""

    bindings: Bindings
    _results: dict[int | str, bool] = field(default_factory=dict)
    """Results by name or by identity of an expression, so that each is examined once."""

    def sends_formatted_sql(self, call: ast.Call, *, called: str) -> bool:
        """Return whether a call of the function with this dotted name sends SQL with values in its text."""
        return any(self._has_values(query) for query in self._list_queries(call, called))

    def _list_queries(self, call: ast.Call, called: str) -> Iterator[ast.expr]:
        """Yield the arguments that may be queries."""
        arguments = list(call.args)
        # the receiver may be any expression: connect().execute(...)
        name = call.func.attr if isinstance(call.func, ast.Attribute) else called.rpartition(".")[2]
        first = arguments[0] if arguments else None
        if called in _CALL_TOOL and isinstance(first, ast.Constant) and isinstance(first.value, str):
            name = re.split(r"__|\.", first.value)[-1]
            del arguments[0]
        if name.lower().replace("_", "") not in _SQL_FUNCTIONS:
            return
        yield from (keyword.value for keyword in call.keywords if keyword.arg in _SQL_ARGUMENTS)
        inputs = [*arguments[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "input")]
        for argument in inputs:
            for value in self._resolve(argument):
                if isinstance(value, ast.Dict):
                    yield from _list_sql_entries(value)
            yield argument

    def _resolve(self, node: ast.expr) -> list[ast.expr]:
        """Return the values of a name, or the expression itself."""
        return self.bindings.get_values(node.id) if isinstance(node, ast.Name) else [node]

    def _has_values(self, node: ast.expr) -> bool:
        """Return whether an expression is SQL with values in its text."""
        key = node.id if isinstance(node, ast.Name) else id(node)
        if key not in self._results:
            self._results[key] = False  # ends the recursion if a name refers to itself
            self._results[key] = self._examine(node)
        return self._results[key]

    def _examine(self, node: ast.expr) -> bool:
        options = self._resolve(node)
        texts = [list(self._split_text(option)) for option in options]
        # a text may be built in steps: its first words in one, a value in another
        is_sql = any(
            _SQL_START.match("".join(part if isinstance(part, str) else "?" for part in text)) for text in texts
        )
        values = [part for text in texts for part in text if not isinstance(part, str)]
        if is_sql and any(not _is_same_name(value, node) for value in values):
            return True
        return any(self._has_values(option) for option in options if isinstance(option, ast.Name))

    def _split_text(self, node: ast.expr) -> Iterator[str | ast.expr]:
        """Yield the parts of a text in order: constant texts, and the values between them."""
        todo = [node]
        while todo:
            part = todo.pop()
            if isinstance(part, ast.JoinedStr):
                todo += reversed(part.values)
            elif isinstance(part, ast.FormattedValue):
                yield "?" if self._is_harmless(part.value) else part.value
            elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
                todo += [part.right, part.left]
            elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                yield from self._split_template(part.left, [part.right])
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "format":
                arguments = [*part.args, *(keyword.value for keyword in part.keywords)]
                yield from self._split_template(part.func.value, arguments)
            elif isinstance(part, ast.Call) and _returns_same_text(part):
                todo.append(part.args[0] if part.args else part.func.value)  # type: ignore[attr-defined]
            elif (text := self._constant_text(part)) is not None:
                yield text
            else:
                yield "?" if self._is_harmless(part) else part

    def _split_template(self, template: ast.expr, values: list[ast.expr]) -> Iterator[str | ast.expr]:
        yield self._constant_text(template) or "?"
        yield from values

    def _constant_text(self, node: ast.expr) -> str | None:
        """Return the text of a constant expression, or None."""
        if isinstance(node, ast.Name) and self.bindings.is_constant(node):
            node = self.bindings.get_values(node.id)[0]
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None

    def _is_harmless(self, node: ast.expr) -> bool:
        """Return whether a value cannot change the meaning of a query: a constant, or a number from a built-in."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NUMBERS:
            return True
        return self.bindings.is_constant(node)


def _list_sql_entries(node: ast.Dict) -> Iterator[ast.expr]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value in _SQL_ARGUMENTS:
            yield value


def _is_same_name(one: ast.expr, other: ast.expr) -> bool:
    """Return whether both are the same name, as in `text = text + ...`. Its earlier values are examined separately."""
    return isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id


def _returns_same_text(call: ast.Call) -> bool:
    """Return whether a call returns its text: `text.strip()`, `dedent(text)`, `textwrap.dedent(text)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "strip":
        return not call.args
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "dedent" and len(call.args) == 1
