"""Interface of a skill in TypeScript: whether it exports `run`, and the members of its argument as a JSON Schema.

The code is split into words, texts and marks in one pass, and is neither compiled nor executed. What is not understood
allows everything: the sandbox's own compiler has the last word.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from mcp_exec_common.skills.interface import ENTRY, MAX_PARAMETERS, InvalidSkill, SkillInterface, bound_schema

_MAX_DEPTH: Final = 6
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_CLOSING: Final = frozenset(_OPENING.values())
_BEFORE_EXPRESSION: Final = frozenset({"return", "typeof", "case", "in", "of", "void", "delete", "throw", "await"})
"""Words that a regular expression may follow; after other words a slash divides."""
_SIMPLE: Final[dict[str, dict[str, Any]]] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "object": {"type": "object"},
}


class Token(NamedTuple):
    """A word, a text with its quotes, or a mark of one character."""

    text: str
    depth: int
    """Number of brackets that it is in."""
    starts_line: bool
    """Whether only spaces precede it on its line."""

    @property
    def is_word(self) -> bool:
        """Whether it is a name, a keyword or a number."""
        return self.text[0].isalnum() or self.text[0] in "_$"

    @property
    def is_text(self) -> bool:
        """Whether it is a string or a template."""
        return self.text[0] in "\"'`"


def read_interface(code: str) -> SkillInterface:
    """Return the interface of a skill's code. Raises InvalidSkill if it exports no function `run`."""
    tokens = list(split_code(code))
    entry = _find_entry(tokens)
    if entry is None:
        raise InvalidSkill("it exports no function `run`; write `export async function run({ ... }) { ... }`")
    return SkillInterface(parameters=bound_schema(_build_schema(tokens, entry)), summary="")


def promote_code(code: str, names: Iterable[str]) -> str:
    """Return the code of a run as that of a skill: the same. Raises InvalidSkill if it exports no function `run`."""
    read_interface(code)
    return code


def split_code(code: str) -> Iterator[Token]:
    """Yield the tokens of code without comments. Takes linear time."""
    place, depth, before, starts_line = 0, 0, "", True
    while place < len(code):
        start, character = place, code[place]
        if character.isspace():
            starts_line = starts_line or character == "\n"
            place += 1
            continue
        if code.startswith("//", place):
            place, starts_line = _find_end(code, "\n", place), True
            continue
        if code.startswith("/*", place):
            place = _find_end(code, "*/", place + 2)
            continue
        if character in "\"'":
            place = _skip_text(code, place + 1, character)
        elif character == "`":
            place = _skip_template(code, place + 1)
        elif character == "/" and _may_begin_expression(before):
            place = _skip_expression(code, place + 1)
        elif character.isalnum() or character in "_$#@":
            while place < len(code) and (code[place].isalnum() or code[place] in "_$#@"):
                place += 1
        else:
            place += 1
        text = code[start:place]
        depth -= text in _CLOSING
        yield Token(text, depth, starts_line)
        depth += text in _OPENING
        before, starts_line = text, False


def _find_end(code: str, end: str, place: int) -> int:
    found = code.find(end, place)
    return len(code) if found < 0 else found + len(end)


def _may_begin_expression(before: str) -> bool:
    if not before or before in _BEFORE_EXPRESSION:
        return True
    return not (before[0].isalnum() or before[0] in "_$)]}\"'`")


def _skip_text(code: str, place: int, quote: str) -> int:
    """Return the place after a string, which ends at the end of its line at the latest."""
    while place < len(code) and code[place] not in (quote, "\n"):
        place += 2 if code[place] == "\\" else 1
    return min(place + 1, len(code))


def _skip_expression(code: str, place: int) -> int:
    """Return the place after a regular expression, in whose brackets a slash stands for itself."""
    in_class = False
    while place < len(code) and code[place] != "\n" and (in_class or code[place] != "/"):
        in_class = code[place] == "[" or (in_class and code[place] != "]")
        place += 2 if code[place] == "\\" else 1
    return min(place + 1, len(code))


def _skip_template(code: str, place: int) -> int:
    """Return the place after a template. Templates in its expressions are skipped with it."""
    inside = ["`"]
    while place < len(code) and inside:
        character = code[place]
        if character == "\\":
            place += 2
            continue
        if inside[-1] == "`" and character == "`":
            inside.pop()
        elif inside[-1] == "`" and code.startswith("${", place):
            inside.append("}")
            place += 1
        elif inside[-1] == "}" and character in "\"'":
            place = _skip_text(code, place + 1, character)
            continue
        elif inside[-1] == "}" and character in "`{}":
            if character == "}":
                inside.pop()
            else:
                inside.append("`" if character == "`" else "}")
        place += 1
    return min(place, len(code))


def _find_entry(tokens: Sequence[Token]) -> int | None:
    """Return the index of the bracket that opens the parameters of `run`, or 0 if they are not known.

    None: no `run` is exported.
    """
    top = [index for index, token in enumerate(tokens) if token.depth == 0]
    texts = [tokens[index].text for index in top]
    for number, text in enumerate(texts):
        if text != "export":
            continue
        words = [each for each in texts[number + 1 : number + 5] if each != "async"]
        if words[:2] == ["function", ENTRY]:
            return _find_bracket(tokens, top[number])
        if words[:1] in (["const"], ["let"], ["var"]) and words[1:2] == [ENTRY]:
            return _find_value(tokens, top[number])
        if words[:1] == ["{"] and _lists_entry(tokens, top[number] + 1):
            return _find_function(tokens, top)
    return None


def _find_value(tokens: Sequence[Token], start: int) -> int:
    """Return the bracket that opens the parameters of the function that a variable gets, or 0 if it is no function."""
    equals = next((index for index in range(start, len(tokens)) if tokens[index].text == "="), len(tokens))
    for index in range(equals + 1, min(equals + 4, len(tokens))):
        if tokens[index].text == "(":
            return index
        if tokens[index].text not in ("async", "function", ENTRY):
            return 0
    return 0


def _lists_entry(tokens: Sequence[Token], start: int) -> bool:
    """Return whether `export { ... }` exports something as `run`."""
    for index in range(start + 1, len(tokens)):
        if tokens[index].text == "}":
            return False
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if tokens[index].text == ENTRY and following in (",", "}"):
            return True
    return False


def _find_function(tokens: Sequence[Token], top: Sequence[int]) -> int:
    for index in top[1:]:
        if tokens[index].text == ENTRY and tokens[index - 1].text == "function":
            return _find_bracket(tokens, index)
    return 0


def _find_bracket(tokens: Sequence[Token], start: int) -> int:
    return next((index for index in range(start, len(tokens)) if tokens[index].text == "("), 0)


def _build_schema(tokens: Sequence[Token], entry: int) -> dict[str, Any]:
    """Return the schema of the first parameter, which has all arguments as its members."""
    if not entry or entry + 1 >= len(tokens):
        return {"type": "object"}
    first = tokens[entry + 1]
    if first.text == ")":
        return {"type": "object", "properties": {}, "additionalProperties": False}
    members, rest = _split_members(tokens, entry + 1) if first.text == "{" else ([], entry + 2)
    types = _find_types(tokens, rest)
    properties: dict[str, Any] = dict(types[0])
    required = types[1]
    for member in members:
        name = member[0].text
        if name == "." or not member[0].is_word:
            continue
        properties.setdefault(name, {})
        if any(token.text == "=" for token in member) and name in required:
            required.remove(name)
        elif not types[0] and not any(token.text == "=" for token in member):
            required.append(name)
    kept = dict(list(properties.items())[:MAX_PARAMETERS])
    found = [name for name in required if name in kept]
    return {"type": "object", "properties": kept, **({"required": found} if found else {})}


def _split_members(tokens: Sequence[Token], start: int, *, of_type: bool = False) -> tuple[list[list[Token]], int]:
    """Return the members of a bracket, and the index after its end. Those of a type may be on lines of their own."""
    members: list[list[Token]] = [[]]
    inner, arguments = tokens[start].depth + 1, 0
    for index in range(start + 1, len(tokens)):
        token = tokens[index]
        if token.depth < inner:
            return [member for member in members if member], index + 1
        is_outer = token.depth == inner
        if is_outer and of_type and token.text in "<>" and tokens[index - 1].text != "=":
            arguments += 1 if token.text == "<" else -1
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if is_outer and (token.text == ";" or (token.text == "," and arguments < 1)):
            members.append([])
            arguments = 0
            continue
        if is_outer and of_type and token.starts_line and arguments < 1 and following in (":", "?"):
            members.append([])
        members[-1].append(token)
    return [member for member in members if member], len(tokens)


def _find_types(tokens: Sequence[Token], place: int) -> tuple[dict[str, Any], list[str]]:
    """Return the properties and the required names of a parameter's type, if it is written there or declared."""
    if place + 1 >= len(tokens) or tokens[place].text != ":":
        return {}, []
    place += 1
    if tokens[place].text != "{":
        name = tokens[place].text
        declared = (
            index
            for index in range(2, len(tokens))
            if (tokens[index].text == "{" and (tokens[index - 1].text, tokens[index - 2].text) == (name, "interface"))
            or (index > 2 and [each.text for each in tokens[index - 3 : index]] == ["type", name, "="])
        )
        place = next(declared, 0)
        if not place or tokens[place].text != "{":
            return {}, []
    properties: dict[str, Any] = {}
    required: list[str] = []
    for member in _split_members(tokens, place, of_type=True)[0]:
        name = member[0].text.strip("\"'")
        texts = [token.text for token in member[1:]]
        if ":" not in texts[:2] or not name:
            continue
        properties[name] = _read_type(member[texts.index(":") + 2 :])
        if texts[0] != "?":
            required.append(name)
    return properties, required


def _read_type(tokens: Sequence[Token], depth: int = 0) -> dict[str, Any]:
    """Return the schema of a type; an empty one, which allows everything, if it is not understood."""
    if depth > _MAX_DEPTH:
        return {}
    texts = [token.text for token in tokens]
    if texts[-2:] == ["[", "]"]:
        items = _read_type(tokens[:-2], depth + 1)
        return {"type": "array", "items": items} if items else {"type": "array"}
    if texts and all(token.is_text for token in tokens[::2]) and all(text == "|" for text in texts[1::2]):
        return {"enum": [text[1:-1] for text in texts[::2]]}
    return dict(_SIMPLE.get(texts[0], {})) if len(texts) == 1 else {}
