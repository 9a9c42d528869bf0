"""Compilation of the agent's code: every shape that models write becomes one code object that runs in `__main__`.

The syntax tree changes in three places, all invisible to the code: the value of the last expression is assigned to a
reserved name, a top-level `return`, which Python refuses, raises `TopLevelReturn`, and imports from `__future__` move
to the top. Top-level `await` only needs a compiler flag. Code that is no Python is repaired, if it is a notebook's or
stands in Markdown.
"""

import ast
import builtins
import dis
import inspect
import io
import keyword
import linecache
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from mcp_exec_sandbox.protocol import AGENT_FILE
from mcp_exec_sandbox.tools.calls import call_mcp_tool, search_tools
from mcp_exec_sandbox.tools.display.show import display, show
from mcp_exec_sandbox.tools.progress import progress

CONTEXT_NAME = "context"
_SPAWNED_NAME = "__mp_main__"
"""Name of `__main__` in interpreters that `multiprocessing` spawns."""
PREDEFINED = {
    "call_mcp_tool": call_mcp_tool,
    "display": display,
    "progress": progress,
    "search_tools": search_tools,
    "show": show,
}
"""Functions that code may use without an import."""
RESULT_NAME = "__mcp_exec_result__"
RETURN_NAME = "__mcp_exec_return__"

# Called at the top level without `await`, these functions need a running loop.
_LOOP_CALLS = frozenset({"create_task", "get_running_loop", "current_task", "ensure_future"})
_SEMICOLON = re.compile(rb"(?:[ \t\f]|\\\n)*;")
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class MainModule(ModuleType):
    """`__main__`, whose file exists only for the modules that start interpreters."""

    @property
    def __file__(self) -> str:
        """Path of the file. The code's own variable of this name is a path in the workspace."""
        caller = sys._getframe(1).f_globals.get("__name__")
        if isinstance(caller, str) and caller.rpartition(".")[2] == "spawn":
            from mcp_exec_sandbox.runner.spawned_main import write_main_file

            return write_main_file(self.__dict__)
        return str(self.__dict__.get("__file__"))

    @__file__.setter
    def __file__(self, path: str) -> None:
        self.__dict__["__file__"] = path


def create_main_module(context: dict[str, Any], workspace: Path) -> ModuleType:
    """Create and register a new `__main__`, where dataclasses, pickle and `get_type_hints` find the code's names."""
    module = MainModule("__main__")
    module.__file__ = str(workspace / "agent.py")
    module.__dict__["__builtins__"] = builtins
    module.__dict__.update(PREDEFINED | select_variables(context))
    register(module)
    return module


def register(module: ModuleType) -> None:
    """Make the module `__main__`, by both names that pickles of `multiprocessing` use for it."""
    sys.modules["__main__"] = module
    if _SPAWNED_NAME in sys.modules:
        # `multiprocessing` was imported before, by a module of the pool: it noted the `__main__` of that time.
        sys.modules[_SPAWNED_NAME] = module


def renew_main_module(module: ModuleType, context: dict[str, Any]) -> None:
    """Add the context of a session's next job to the variables that the earlier ones left."""
    module.__dict__.update(select_variables(context))
    register(module)


def link_source(module: ModuleType, file: str, *, job: int) -> None:
    """Let `inspect.getsource` find classes of the code, which it looks up in the module's file.

    From Python 3.13 a class has the number of its line only, so in a session a class of an earlier job would get the
    lines of the last one.
    """
    name = getattr(module, "__file__", None)
    if not isinstance(name, str):
        return
    if job > 1 and sys.version_info >= (3, 13):
        linecache.cache.pop(name, None)
    elif file in linecache.cache:
        linecache.cache[name] = linecache.cache[file]


def select_variables(context: dict[str, Any]) -> dict[str, Any]:
    """Return the code's first variables: `context` itself and those of its keys that can be variables.

    A key can't be one if it is no identifier, is a keyword, would hide a builtin (`id`, `type`) or begins with two
    underscores. The code reads these from `context`.
    """
    variables = {
        key: value
        for key, value in context.items()
        if key.isidentifier() and not keyword.iskeyword(key) and not key.startswith("__") and not hasattr(builtins, key)
    }
    return {**variables, CONTEXT_NAME: context}


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
    """Changes that made the code Python, one sentence each."""


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
        from mcp_exec_sandbox.tools.libraries import explain_install
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
