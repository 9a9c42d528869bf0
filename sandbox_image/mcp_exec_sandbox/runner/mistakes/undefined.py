"""Names that code uses and never defines: the error says what to write.

Models forget the import of a tool, a skill or a library, and use variables of an earlier run. The runner imports this
module only for such an error.
"""

import ast
import builtins
import linecache
import re
import traceback
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from types import FrameType
from typing import Final

from mcp_exec_sandbox.protocol import AGENT_FILE, SERVERS_FOLDER, SKILLS_FOLDER
from mcp_exec_sandbox.runner.report import is_agent_file
from mcp_exec_sandbox.sdk import client, skills
from mcp_exec_sandbox.skills import get_store
from mcp_exec_sandbox.tools import tool_session
from mcp_exec_sandbox.tools.calls import search_tools
from mcp_exec_sandbox.tools.libraries import describe_missing, is_installed, is_known_library, list_causes
from mcp_exec_tools.names import find_close_names, fold, identifier
from mcp_exec_tools.search.index import MAX_LIMIT

NO_VARIABLES: Final = "a run has no variables of earlier runs; define it in this code, or run both in one `session`"
ALIASES: Final = {
    "np": "numpy",
    "nx": "networkx",
    "pd": "pandas",
    "pl": "polars",
    "plt": "matplotlib.pyplot",
    "px": "plotly.express",
    "sns": "seaborn",
}
"""Names that code gives libraries by convention."""
_NEAR: Final = 0.8
"""Least similarity of a name and the one that it may mean, as difflib measures it."""
_MAX_NAME: Final = 100
_MAX_SOURCE: Final = 1_000_000


def explain_undefined(error: BaseException, workspace: Path, *, keeps_variables: bool) -> None:
    """Add what to write to each NameError of the code, in an error with its causes and parts.

    Args:
        error: the error that has ended the run.
        workspace: the working folder, which may have modules of the code.
        keeps_variables: whether the run belongs to a session, which has the variables of earlier runs.
    """
    for each in list_causes(error):
        if type(each) is not NameError or (name := each.name) is None or len(name) > _MAX_NAME:
            continue
        frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        if not frames or each.args != (f"name {name!r} is not defined",):
            continue
        file = frames[-1].f_code.co_filename
        source = "".join(linecache.getlines(file)) if is_agent_file(file, workspace) else ""
        if not 0 < len(source) <= _MAX_SOURCE or name in _list_bound(source):
            continue
        hint = _find_import(name, source) or _find_near(name, source, frames[-1])
        if not hint and not keeps_variables and file.startswith(AGENT_FILE.rstrip(">")):
            hint = f": {NO_VARIABLES}"
        if hint:
            each.args = (f"{each.args[0]}{hint}",)
            # CPython's traceback has a hint of its own for an error with a name.
            each.name = None


def _list_bound(source: str) -> set[str]:
    """Return the names that the code defines somewhere. Where it uses one too early or too late, Python's words do."""
    tree = compile(source, AGENT_FILE, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return {name for node in ast.walk(tree) for name in _list_defined(node)}


def _list_defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(name := getattr(node, "name", None), str):  # functions, classes, `except ... as`, patterns
        yield name


def _find_import(name: str, source: str) -> str:
    """Return what to write if the name is that of a server, a tool, a skill or a library, else an empty text."""
    if name in _list_packages():
        return _write(f"from {SERVERS_FOLDER} import {name}")
    for module in (client, skills):
        if name in module.__all__:
            return _write(f"from {module.__name__.rpartition('.')[2]} import {name}")
    attribute = re.search(rf"(?<![\w.]){re.escape(name)}\s*\.\s*(\w+)", source)
    if name in _list_skills():
        return _write(f"from {SKILLS_FOLDER}{f' import {name}' if attribute else f'.{name} import run'}")
    if attribute is not None:
        return _find_module(name, attribute[1])
    return _find_tool(name) if "_" in name or _is_called(name, source) else ""


def _find_module(name: str, attribute: str) -> str:
    """Return what to write if a name with an attribute is that of a module."""
    if name == SERVERS_FOLDER:
        return _write(f"from {SERVERS_FOLDER} import {attribute}")
    module = ALIASES.get(name, name)
    library = module.partition(".")[0]
    if is_installed(library):
        return _write(f"import {module}{'' if module == name else f' as {name}'}")
    return f": {describe_missing(library)}" if module != name or is_known_library(name) else ""


def _find_tool(name: str) -> str:
    found = search_tools(name, "with_description", 1)
    if found and name in (found[0]["name"], f"{identifier(found[0]['server'])}_{found[0]['name']}"):
        return _write(found[0]["import"])
    return ""


def _find_near(name: str, source: str, frame: FrameType) -> str:
    """Return what may be meant if the name is nearly one of the code or Python, a server or a tool that is called."""
    if defined := _choose(name, [*frame.f_locals, *frame.f_globals, *dir(builtins)]):
        return f". Did you mean: {defined}?"
    if server := _choose(name, _list_packages()):
        return f". Did you mean: {server}? Write `from {SERVERS_FOLDER} import {server}`"
    if not _is_called(name, source):
        return ""
    tools = {found["name"]: found["import"] for found in search_tools("", "with_description", MAX_LIMIT)}
    tool = _choose(name, tools)
    return f". Did you mean: {tool}? Write `{tools[tool]}`" if tool else ""


def _write(line: str) -> str:
    return f": write `{line}`"


def _choose(name: str, known: Iterable[str]) -> str:
    """Return the nearest of the known names, or an empty text if none is so near that it is meant."""
    close = find_close_names(name, known)[:1]
    return next((each for each in close if SequenceMatcher(None, fold(name), fold(each)).ratio() >= _NEAR), "")


def _is_called(name: str, source: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\s*\(", source) is not None


def _list_packages() -> set[str]:
    return {identifier(server) for server in tool_session.get_session().servers or ()}


def _list_skills() -> set[str]:
    store = get_store()
    return {*store.sources, *(str(entry.get("name")) for entry in store.catalog)}
