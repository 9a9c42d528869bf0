"""Compilation of the agent's code: every shape that models write becomes one code object that runs in `__main__`.

The syntax tree changes in three places, all invisible to the code: the value of the last expression is assigned to a
reserved name, a top-level `return`, which Python refuses, raises `TopLevelReturn`, and imports from `__future__` move
to the top. Top-level `await` only needs a compiler flag. Code that is no Python is repaired, if it is a notebook's or
stands in Markdown.
"""

import ast
import dis
import inspect
import io
import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from mcp_exec_sandbox.protocol import AGENT_FILE

RESULT_NAME = "__mcp_exec_result__"
RETURN_NAME = "__mcp_exec_return__"

# Called at the top level without `await`, these functions need a running loop.
_LOOP_CALLS = frozenset({"create_task", "get_running_loop", "current_task", "ensure_future"})
_SEMICOLON = re.compile(rb"(?:[ \t\f]|\\\n)*;")
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class TopLevelReturn(BaseException):
    """A top-level `return`. It is not an `Exception`, so the code's own handlers don't catch it."""

    def __init__(self, value: Any = None) -> None:
        super().__init__()
        self.value = value


@dataclass(frozen=True, kw_only=True)
class Program:
    """Compiled code, and how to run it."""

    code: CodeType

    is_coroutine: bool
    """Evaluating the code yields a coroutine (it awaits at the top level)."""

    needs_loop: bool
    """The code needs a running event loop."""

    is_silent: bool = False
    """A semicolon ends the last expression, so its value is not the result."""

    changes: tuple[str, ...] = ()
    """What was changed to make the code Python, one sentence each."""


def compile_program(source: str, *, file: str = AGENT_FILE) -> Program:
    """Compile the agent's code and register its lines for tracebacks.

    Raises:
        SyntaxError: the code isn't Python.
        ValueError: the code has null bytes or lone surrogates (UnicodeError).
    """
    changes: tuple[str, ...] = ()
    try:
        tree = _parse(source, file)
    except SyntaxError as error:
        from mcp_exec_sandbox.tools.libraries.hints import explain_install
        from mcp_exec_tools.source.repair import repair

        remember_source(source, file)
        repaired = repair(source, error, parse=lambda code: _parse(code, file), explain_install=explain_install)
        source, tree, changes = repaired.code, repaired.tree, repaired.changes
    lines = remember_source(source, file)
    tree = _ReturnRewriter().visit(tree)
    is_silent = _ends_with_semicolon(tree.body, lines)
    _keep_last_expression(tree.body)
    changes += _hoist_future_imports(tree)
    ast.fix_missing_locations(tree)
    code = compile(tree, file, "exec", _FLAGS, dont_inherit=True)
    is_coroutine = bool(code.co_flags & inspect.CO_COROUTINE)
    return Program(
        code=code,
        is_coroutine=is_coroutine,
        needs_loop=is_coroutine or _calls_loop(tree),
        is_silent=is_silent,
        changes=changes,
    )


def remember_source(source: str, file: str) -> list[str]:
    """Register the lines of a file for tracebacks and `inspect`, and return them. Lines end as Python counts them."""
    lines = io.StringIO(source, newline=None).readlines()
    linecache.cache[file] = (len(source), None, lines, file)
    return lines


def _parse(source: str, file: str) -> ast.Module:
    tree = compile(source, file, "exec", _FLAGS | ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)  # noqa: S101 - narrows the type
    return tree


def assigns(program: Program, name: str) -> bool:
    """Return whether the code assigns a variable outside functions. It may assign the value that it already has."""
    return any(
        instruction.opname in ("STORE_NAME", "STORE_GLOBAL") and instruction.argval == name
        for instruction in dis.get_instructions(program.code)
    )


def forget_source(file: str) -> None:
    """Drop the lines of code that ran long ago. Tracebacks through its functions have no text any more."""
    linecache.cache.pop(file, None)


def _keep_last_expression(body: list[ast.stmt]) -> None:
    """Assign the last expression to `RESULT_NAME`, also at the end of an `if` such as `if __name__ == "__main__":`."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr):
        target = ast.copy_location(ast.Name(RESULT_NAME, ast.Store()), last)
        body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
    elif isinstance(last, ast.If):
        _keep_last_expression(last.body)
        _keep_last_expression(last.orelse)


def _ends_with_semicolon(body: Sequence[ast.stmt], lines: Sequence[str]) -> bool:
    """Return whether a semicolon follows the last statement, an expression outside other statements."""
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr) or last.end_lineno is None:
        return False
    rest = "".join(lines[last.end_lineno - 1 :]).encode("utf-8", "replace")[last.end_col_offset :]
    return _SEMICOLON.match(rest) is not None


def _hoist_future_imports(tree: ast.Module) -> tuple[str, ...]:
    """Move imports from `__future__` behind the docstring, where Python wants them. Return what changed."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    if not imports:
        return ()
    first = tree.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    start = tree.body[:1] if has_docstring else []
    others = [node for node in tree.body[len(start) :] if node not in imports]
    late = [node.lineno for node, moved in zip(tree.body[len(start) :], imports, strict=False) if node is not moved]
    tree.body = [*start, *imports, *others]
    return (f"Line {imports[-1].lineno}: `from __future__` took effect from the first line.",) if late else ()


def _calls_loop(tree: ast.AST) -> bool:
    """Return whether code outside functions and classes calls a function that needs a running loop."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, _SCOPES):
            continue
        if isinstance(child, ast.Call):
            name = child.func.attr if isinstance(child.func, ast.Attribute) else getattr(child.func, "id", "")
            if name in _LOOP_CALLS:
                return True
        if _calls_loop(child):
            return True
    return False


class _ReturnRewriter(ast.NodeTransformer):
    """Transformer of `return x` outside functions into `raise TopLevelReturn(x)`."""

    def __init__(self) -> None:
        self._found = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self._found = True
        arguments = [] if node.value is None else [node.value]
        call = ast.Call(ast.Name(RETURN_NAME, ast.Load()), arguments, [])
        return ast.fix_missing_locations(ast.copy_location(ast.Raise(call, None), node))

    def visit_Try(self, node: ast.Try) -> ast.AST:
        outside, self._found = self._found, False
        node.body = [self.visit(statement) for statement in node.body]
        if self._found and node.handlers:
            # A bare `except:` around the return must not catch it.
            passing = ast.ExceptHandler(ast.Name(RETURN_NAME, ast.Load()), None, [ast.Raise(None, None)])
            node.handlers.insert(0, ast.fix_missing_locations(ast.copy_location(passing, node)))
        for name in ("handlers", "orelse", "finalbody"):
            setattr(node, name, [self.visit(child) for child in getattr(node, name)])
        self._found = self._found or outside
        return node
