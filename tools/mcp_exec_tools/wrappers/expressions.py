"""Type expressions, formatted as `ruff format` does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mcp_exec_tools.wrappers.text import WIDTH

_STEP: Final = "    "


@dataclass(frozen=True)
class Name:
    """Name, literal, or quoted name of a later definition. It cannot be broken into lines."""

    text: str

    def flat(self) -> str:
        """Return the expression in one line."""
        return self.text


@dataclass(frozen=True)
class Generic:
    """Generic type: `name[item, item]`."""

    name: str
    items: tuple["Expression", ...]

    def flat(self) -> str:
        """Return the expression in one line."""
        return f"{self.name}[{', '.join(item.flat() for item in self.items)}]"


@dataclass(frozen=True)
class Union:
    """Union type: `member | member`. No member is a union."""

    members: tuple["Expression", ...]

    def flat(self) -> str:
        """Return the expression in one line."""
        texts = [member.flat() for member in self.members]
        if any(text.startswith('"') for text in texts):
            return f"Union[{', '.join(texts)}]"
        return " | ".join(texts)


Expression = Name | Generic | Union

ANY: Final = Name("Any")
NONE: Final = Name("None")


def make_union(members: Sequence[Expression], *, most: int = 16) -> Expression:
    """Return the union of the members, without duplicates, with one Literal, and with None last.

    A union of more than `most` members is Any.
    """
    expressions: dict[Expression, None] = {}
    literals: dict[Expression, None] = {}
    for member in members:
        for option in member.members if isinstance(member, Union) else (member,):
            if isinstance(option, Generic) and option.name == "Literal":
                literals |= dict.fromkeys(option.items)
            expressions[Name("Literal") if isinstance(option, Generic) and option.name == "Literal" else option] = None
    if ANY in expressions or not expressions or len(expressions) > most:
        return ANY
    is_optional = NONE in expressions
    expressions.pop(NONE, None)
    options = [Generic("Literal", tuple(literals)) if option == Name("Literal") else option for option in expressions]
    options += [NONE] if is_optional else []
    return options[0] if len(options) == 1 else Union(tuple(options))


def format_expression(before: str, expression: Expression, after: str = "", *, indent: str = "") -> list[str]:
    """Return the lines of `before expression after`, broken if one line would be too long.

    A union that is too long for its line is put in parentheses. The caller passes none if these change the meaning.
    """
    flat = f"{indent}{before}{expression.flat()}{after}"
    if len(flat) <= WIDTH or isinstance(expression, Name):
        return [flat]
    if isinstance(expression, Generic):
        if len(expression.items) == 1:
            inner = format_expression("", expression.items[0], indent=indent + _STEP)
        else:
            inner = [
                line for item in expression.items for line in format_expression("", item, ",", indent=indent + _STEP)
            ]
        return [f"{indent}{before}{expression.name}[", *inner, f"{indent}]{after}"]
    if (text := expression.flat()).startswith("Union["):
        return format_expression(before, Generic("Union", expression.members), after, indent=indent)
    if len(indent + _STEP + text) <= WIDTH:
        return [f"{indent}{before}(", f"{indent}{_STEP}{text}", f"{indent}){after}"]
    first, *rest = (member.flat() for member in expression.members)
    lines = [f"{indent}{_STEP}{first}", *(f"{indent}{_STEP}| {member}" for member in rest)]
    return [f"{indent}{before}(", *lines, f"{indent}){after}"]
