"""Functions of a Python file, found without running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mcp_exec_client.cli.importing.definitions import MAX_TOOLS, ImportProblem
from mcp_exec_client.cli.options import CommandError

MAX_SOURCE_BYTES: Final = 64 * 1024
"""The source is an argument of the server's command, of which Linux takes at most 128 KiB."""


@dataclass(kw_only=True)
class ImportedFunctions:
    """Functions that can be tools, and those that cannot."""

    source: str
    names: list[str] = field(default_factory=list)
    problems: list[ImportProblem] = field(default_factory=list)


def read_functions(path: Path) -> ImportedFunctions:
    """Read the public functions at the top level of a Python file. Raises CommandError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SOURCE_BYTES + 1)
        if len(content) > MAX_SOURCE_BYTES:
            raise CommandError(
                f"{path} is larger than {MAX_SOURCE_BYTES} bytes: put the code into an image, "
                "and import a small file that imports it, with --image"
            )
        # as Python reads it: lines end with \n, and no NUL or byte order mark remains
        source = content.decode("utf-8-sig").replace("\r\n", "\n")
        tree = ast.parse(source, filename=path.name)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 at byte {error.start}") from error
    except SyntaxError as error:
        raise CommandError(f"{path} is not valid Python, line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CommandError(f"{path} is not valid Python: {error or 'it is nested too deeply'}") from error
    found = ImportedFunctions(source=source)
    for name, function in {each.name: each for each in _find_functions(tree)}.items():  # the last one counts
        if reason := _find_obstacle(function):
            found.problems.append(ImportProblem(tool=name[:80], reason=reason))
        else:
            found.names.append(name)
    if len(found.names) > MAX_TOOLS:
        raise CommandError(f"{path} has {len(found.names)} functions, but at most {MAX_TOOLS} are allowed")
    return found


def _find_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node


def _find_obstacle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """Return why a function cannot be a tool, whose arguments have names."""
    arguments = function.args
    if not function.name.isascii() or len(function.name) > 128:
        return "its name must have 1 to 128 ASCII letters, digits and '_'"
    for star, argument in (("*", arguments.vararg), ("**", arguments.kwarg)):
        if argument is not None:
            return f"its parameter {star}{argument.arg} has no fixed name: name each parameter"
    if arguments.posonlyargs:
        return f"its parameter {arguments.posonlyargs[0].arg} is positional only: remove the '/'"
    for argument in (*arguments.args, *arguments.kwonlyargs):
        if argument.arg.startswith("_"):
            return f"its parameter {argument.arg} begins with '_': rename it"
    return None
