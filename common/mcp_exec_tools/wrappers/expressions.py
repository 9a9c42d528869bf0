"""Type expressions and how they are laid out in lines, as `ruff format` lays them out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mcp_exec_tools.wrappers.text import WIDTH

_STEP: Final = "    "


@dataclass(frozen=True)
class Name:
    """A name, a literal, or a quoted name of what is defined later: nothing that could be broken into lines."""

    text: str

    def flat(self) -> str:
        """The expression in one line."""
        return self.text


@dataclass(frozen=True)
class Generic:
    """`name[item, item]`."""

    name: str
    items: tuple["Expression", ...]

    def flat(self) -> str:
        """The expression in one line."""
        return f"{self.name}[{', '.join(item.flat() for item in self.items)}]"


@dataclass(frozen=True)
class Union:
    """`member | member`; members are no unions."""

    members: tuple["Expression", ...]

    def flat(self) -> str:
        """The expression in one line."""
        texts = [member.flat() for member in self.members]
        if any(text.startswith('"') for text in texts):
            return f"Union[{', '.join(texts)}]"
        return " | ".join(texts)


Expression = Name | Generic | Union

ANY: Final = Name("Any")
NONE: Final = Name("None")


def make_union(members: Sequence[Expression], *, most: int = 16) -> Expression:
    """One of the members: alike ones once, literals joined, None last; what is too wide is Any."""
    found: dict[Expression, None] = {}
    literals: dict[Expression, None] = {}
    for member in members:
        for each in member.members if isinstance(member, Union) else (member,):
            if isinstance(each, Generic) and each.name == "Literal":
                literals |= dict.fromkeys(each.items)
            found[Name("Literal") if isinstance(each, Generic) and each.name == "Literal" else each] = None
    if ANY in found or not found or len(found) > most:
        return ANY
    absent = NONE in found
    found.pop(NONE, None)
    joined = [Generic("Literal", tuple(literals)) if each == Name("Literal") else each for each in found]
    joined += [NONE] if absent else []
    return joined[0] if len(joined) == 1 else Union(tuple(joined))


def format_expression(before: str, expression: Expression, after: str = "", *, indent: str = "") -> list[str]:
    """Lines of `before expression after`, where no line needs to be longer than it can be.

    A union that is too long for its line is put into brackets; the caller gives none where brackets change the sense.
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
    lines = [f"{indent}{_STEP}{first}", *(f"{indent}{_STEP}| {each}" for each in rest)]
    return [f"{indent}{before}(", *lines, f"{indent}){after}"]
