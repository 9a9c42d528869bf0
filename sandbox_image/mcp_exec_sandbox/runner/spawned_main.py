"""File of the module `__main__` of the code, as new interpreters get it that `multiprocessing` spawns.

Such an interpreter runs the file of `__main__` for the functions and classes that it needs. The code has no file, and
mostly no `if __name__ == "__main__":`, so that its children would repeat all that it does. When the first child starts,
a file is made of what children need: imports, functions, classes and simple assignments, and the values of the other
variables that these use. Code with such an `if` is executed as Python does it.
"""

import ast
import contextlib
import dis
import inspect
import io
import linecache
import marshal
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from mcp_exec_sandbox.protocol import AGENT_FILE

VALUES_BYTES = 16 * 1024 * 1024
"""Maximum size of the values that a child gets, all together. It lacks the others."""

_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_EFFECTS = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
_FILE = """\
def _start(names):
    import linecache, marshal, os, pickle
    try:
        from mcp_exec_sandbox.runner.user import name_user
        name_user(os.environ)
    except ImportError:
        pass  # the code has changed the path of imports
    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            return names[name] if module == "__main__" else super().find_class(module, name)
    def load():
        import io
        for name, data in marshal.loads({values!r}):
            try:
                names[name] = Unpickler(io.BytesIO(data)).load()
            except Exception:
                pass
    load()
    for file, source, code in marshal.loads({codes!r}):
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(code, names)
    if not {is_guarded}:
        load()
_start(globals())
del _start
"""


def write_main_file(names: dict[str, Any]) -> str:
    """Write the file for children of code with these variables, as they are now, and return its path."""
    sources = [
        (file, "".join(entry[2]))
        for file, entry in list(linecache.cache.items())
        if file.startswith(AGENT_FILE.rstrip(">")) and len(entry) == 4
    ]
    compiled = [_compile(source, file, names) for file, source in sources]
    codes = [(file, source, code) for (file, source), (code, _) in zip(sources, compiled, strict=True)]
    is_guarded = any(guarded for _, guarded in compiled)
    values = list(_pickle_values(names, [code for _, _, code in codes], is_guarded=is_guarded))
    text = _FILE.format(values=marshal.dumps(values), codes=marshal.dumps(codes), is_guarded=is_guarded)
    folder = Path(tempfile.gettempdir(), f".mcp-exec-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    new, path = folder / f"{os.getpid()}-{len(text)}.new", folder / "agent.py"
    new.write_text(text)
    new.replace(path)
    return str(path)


def _compile(source: str, file: str, names: dict[str, Any]) -> tuple[CodeType, bool]:
    """Compile the part of a job's code that children execute. The flag is whether that is all of it."""
    tree = ast.parse("")
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        tree = compile(source, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, dont_inherit=True)
        if any(_is_guard(statement) for statement in tree.body):
            code = compile(tree, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            if not code.co_flags & inspect.CO_COROUTINE:
                return code, True
    kept = [_guard_against_errors(statement) for statement in tree.body if _is_definition(statement, names)]
    future = [node for node in kept if isinstance(node, ast.ImportFrom)]
    module = ast.Module([*future, *(node for node in kept if node not in future)], [])
    return compile(ast.fix_missing_locations(module), file, "exec", dont_inherit=True), False


def _is_guard(statement: ast.stmt) -> bool:
    """Return whether it is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _is_definition(statement: ast.stmt, names: dict[str, Any]) -> bool:
    if isinstance(statement, ast.Try):
        parts = [*statement.body, *statement.orelse, *(part for each in statement.handlers for part in each.body)]
        return not statement.finalbody and all(_is_definition(part, names) for part in parts)
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets, value = [statement.target], statement.value
    else:
        return isinstance(statement, (*_DEFINITIONS, ast.Pass))
    if not all(isinstance(target, ast.Name) for target in targets):
        return False
    makes_class = all(isinstance(target, ast.Name) and isinstance(names.get(target.id), type) for target in targets)
    return makes_class or not _has_effects(value)


def _has_effects(node: ast.AST) -> bool:
    if isinstance(node, ast.Lambda):
        return False
    return isinstance(node, _EFFECTS) or any(_has_effects(child) for child in ast.iter_child_nodes(node))


def _guard_against_errors(statement: ast.stmt) -> ast.stmt:
    """Let children go on without a definition that needs what they lack."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return statement
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
    return ast.copy_location(ast.Try([statement], [handler], [], []), statement)


def _pickle_values(names: dict[str, Any], codes: list[CodeType], *, is_guarded: bool) -> Iterator[tuple[str, bytes]]:
    """Pickle the variables that functions use. What can't be pickled is left out, as is what guarded code defines."""
    used: set[str] = set()
    for code in codes:
        used.update(_list_names(code))
    if is_guarded:
        used -= {name for code in codes for name in _list_bound(code)}
    room = VALUES_BYTES
    for name in sorted(used & names.keys()):
        value = names[name]
        if isinstance(value, ModuleType) or name.startswith("__"):
            continue
        buffer = _BoundedBuffer(room)
        with contextlib.suppress(Exception):
            pickle.Pickler(buffer).dump(value)
            data = buffer.getvalue()
            room -= len(data)
            yield name, data


def _list_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_names(constant)


def _list_bound(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_NAME":
            yield instruction.argval


class _BoundedBuffer(io.BytesIO):
    """Buffer that refuses more than so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: Any, /) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise BufferError
        return super().write(data)
