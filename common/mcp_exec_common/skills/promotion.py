"""Code of a run as the code of a skill: its definitions, or a function `run` around all of it."""

import ast
import keyword
from collections.abc import Iterable

from mcp_exec_common.code_check.rules import MAX_CHECKED_BYTES, parse_module
from mcp_exec_common.skills.interface import ENTRY, InvalidSkill

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
    """Parse code in which `await` and `return` work at the top level."""
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
