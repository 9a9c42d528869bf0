"""Interface of a skill in Python: the parameters of its function `run` as a JSON Schema.

The code is read and never executed. It is hostile: its tree is bounded by the size that the static check accepts.
"""

import ast
import json
import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_common.code_check.rules import MAX_CHECKED_BYTES, parse_module
from mcp_exec_tools.text import shorten_line

ENTRY: Final = "run"
"""Name of the function that a skill defines."""
MAX_PARAMETERS: Final = 64
_MAX_TEXT: Final = 500
_MAX_SCHEMA_BYTES: Final = 16 * 1024
_MAX_DEPTH: Final = 6
_DEFINITION: Final = re.compile(r"^(?:async[ \t]+)?def[ \t]+run[ \t]*\(", re.MULTILINE)
_DOCUMENTED: Final = re.compile(r"^\s*\*{0,2}(\w+)(?: \([^)]*\))?:\s*(.+)$")
_LONG_NUMBER: Final = re.compile(r"[0-9]{16}")
"""Numbers that JSON's readers would round."""
_SIMPLE: Final[dict[str, dict[str, Any]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "dict": {"type": "object"},
    "None": {"type": "null"},
    "Any": {},
}
_LISTS: Final = frozenset({"list", "List", "Sequence", "Iterable", "set", "tuple"})
_OBJECTS: Final = frozenset({"dict", "Dict", "Mapping"})


class InvalidSkill(ValueError):
    """Code that can't be a skill's. The message says what is wrong and what to do."""


@dataclass(frozen=True, kw_only=True)
class SkillInterface:
    """What callers of `run` have to know."""

    parameters: dict[str, Any]
    """JSON Schema of an object with the arguments by their names."""
    summary: str
    """First line of the docstring."""


def read_interface(code: str) -> SkillInterface:
    """Return the interface of a skill's code. Raises InvalidSkill if it has none.

    Of code that is too long to be parsed, only the presence of `run` is known.
    """
    if len(code.encode("utf-8", "surrogatepass")) > MAX_CHECKED_BYTES:
        if not _DEFINITION.search(code):
            raise InvalidSkill(_missing())
        return SkillInterface(parameters={"type": "object"}, summary="")
    try:
        tree = parse_module(code)
    except SyntaxError as error:
        raise InvalidSkill(f"it is no Python: line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise InvalidSkill("it is no Python, or is nested too deeply") from None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    entry = next((node for node in reversed(functions) if node.name == ENTRY), None)
    if entry is None:
        raise InvalidSkill(_missing())
    if entry.args.posonlyargs:
        raise InvalidSkill("`run` has positional-only parameters; arguments are passed by their names")
    text = ast.get_docstring(entry) or ast.get_docstring(tree) or ""
    return SkillInterface(parameters=bound_schema(_build_schema(entry.args, text)), summary=_first_line(text))


def _missing() -> str:
    return "it defines no function `run` at its top level; write `def run(...):` or `async def run(...):`"


def _first_line(text: str) -> str:
    return shorten_line(text.strip().partition("\n")[0].strip(), _MAX_TEXT)


def _build_schema(arguments: ast.arguments, text: str) -> dict[str, Any]:
    documented = _read_documented(text)
    plain = arguments.args
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    properties: dict[str, Any] = {}
    required: list[str] = []
    pairs = [*zip(plain, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    for argument, default in pairs[:MAX_PARAMETERS]:
        schema = _read_annotation(argument.annotation, 0)
        if argument.arg in documented:
            schema = {**schema, "description": documented[argument.arg]}
        if default is None:
            required.append(argument.arg)
        else:
            schema = {**schema, **_read_default(default)}
        properties[argument.arg] = schema
    result: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    if arguments.kwarg is None and len(pairs) <= MAX_PARAMETERS:
        result["additionalProperties"] = False
    return result


def bound_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema, or one that allows any object if it is too large to be shown."""
    text = json.dumps(schema, ensure_ascii=False).encode("utf-8", "replace")
    bounded: dict[str, Any] = json.loads(text) if len(text) <= _MAX_SCHEMA_BYTES else {"type": "object"}
    return bounded


def _read_documented(text: str) -> dict[str, str]:
    """Return what the section `Args:` of a docstring says of each parameter."""
    _, _, section = text.partition("Args:\n")
    found: dict[str, str] = {}
    for line in section.splitlines():
        if line and not line.startswith((" ", "\t")):
            break
        if match := _DOCUMENTED.match(line[:1000]):
            found.setdefault(match[1], shorten_line(match[2].strip(), _MAX_TEXT))
    return found


def _read_default(default: ast.expr) -> dict[str, Any]:
    try:
        value = ast.literal_eval(default)
        text = json.dumps(value, allow_nan=False)
        if len(text) <= _MAX_TEXT and not _LONG_NUMBER.search(text):
            return {"default": json.loads(text)}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    return {}


def _read_annotation(node: ast.expr | None, depth: int) -> dict[str, Any]:
    """Return the schema of an annotation; an empty one, which allows everything, if it is not understood."""
    if node is None or depth > _MAX_DEPTH:
        return {}
    if isinstance(node, ast.Constant):
        return dict(_SIMPLE.get(str(node.value), {})) if node.value is None or isinstance(node.value, str) else {}
    if isinstance(node, ast.Name | ast.Attribute):
        return dict(_SIMPLE.get(_name(node), {}))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _any_of([_read_annotation(node.left, depth + 1), _read_annotation(node.right, depth + 1)])
    return _read_subscript(node, depth) if isinstance(node, ast.Subscript) else {}


def _read_subscript(node: ast.Subscript, depth: int) -> dict[str, Any]:
    name = _name(node.value)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        allowed = [part.value for part in parts if isinstance(part, ast.Constant)]
        return {"enum": [value for value in allowed if isinstance(value, str) or type(value) is bool]}
    if name == "Optional":
        return _any_of([_read_annotation(parts[0], depth + 1), {"type": "null"}])
    if name == "Union":
        return _any_of([_read_annotation(part, depth + 1) for part in parts])
    if name in _LISTS:
        items = _read_annotation(parts[0], depth + 1)
        return {"type": "array", "items": items} if items else {"type": "array"}
    if name in _OBJECTS:
        values = _read_annotation(parts[-1], depth + 1)
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    return {}


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    if not all(schemas):
        return {}
    flat = [part for schema in schemas for part in (schema["anyOf"] if schema.keys() == {"anyOf"} else [schema])]
    return {"anyOf": flat}


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def promote_code(code: str, names: Iterable[str]) -> str:
    """Return the code of a run as that of a skill. Raises InvalidSkill.

    If the code defines `run`, the result is its definitions, without the statements that the run executed. Otherwise
    it is a function with the run's context as parameters (`names`), whose value is that of the last expression.
    """
    if len(code.encode("utf-8", "surrogatepass")) > MAX_CHECKED_BYTES:
        raise InvalidSkill(f"code of more than {MAX_CHECKED_BYTES} bytes can't become a skill of a run; send the code")
    try:
        tree = _parse(code)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        if any(node.name == ENTRY for node in functions):
            kept = [node for node in tree.body if isinstance(node, _DEFINITIONS) or _is_constant(node)]
            return "\n\n".join(ast.unparse(node) for node in kept) + "\n"
        return ast.unparse(ast.fix_missing_locations(_wrap(tree, names))) + "\n"
    except SyntaxError as error:
        raise InvalidSkill(f"it is no Python: line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise InvalidSkill("it is no Python, or is nested too deeply") from None


def _parse(code: str) -> ast.Module:
    """Parse code; `await` and `return` work at its top level."""
    try:
        return parse_module(code)
    except SyntaxError:
        indented = "async def _():\n" + "".join(f" {line}\n" for line in code.splitlines())
        function = parse_module(indented).body[0]
        assert isinstance(function, ast.AsyncFunctionDef)  # noqa: S101 - written above
        return ast.Module(body=function.body, type_ignores=[])


def _is_constant(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    return not any(isinstance(part, ast.Call | ast.Await | ast.Name) for part in ast.walk(node.value))


def _wrap(tree: ast.Module, names: Iterable[str]) -> ast.Module:
    parameters = sorted(name for name in names if name.isidentifier() and not keyword.iskeyword(name))
    body = list(tree.body)
    if body and isinstance(last := body[-1], ast.Expr):
        body[-1] = ast.Return(value=last.value)
    context = parse_module(f"context = {{{', '.join(f'{name!r}: {name}' for name in parameters)}}}").body
    uses_context = any(isinstance(node, ast.Name) and node.id == "context" for node in ast.walk(tree))
    function = ast.AsyncFunctionDef(
        name=ENTRY,
        args=ast.arguments(
            posonlyargs=[],
            args=[],
            kwonlyargs=[ast.arg(arg=name) for name in parameters],
            kw_defaults=[None for _ in parameters],
            defaults=[],
        ),
        body=[*(context if uses_context else []), *body] or [ast.Pass()],
        decorator_list=[],
    )
    return ast.Module(body=[function], type_ignores=[])
