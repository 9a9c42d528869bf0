"""Values that the names of a program are bound to."""

import ast
from collections.abc import Iterable
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
