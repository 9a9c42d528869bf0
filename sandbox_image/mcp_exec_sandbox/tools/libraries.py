"""Imports of code: tools of servers on first use, and hints in place of plain errors.

The hints are for tools and libraries that do not exist, and for installations of packages.
"""

import functools
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mcp_exec_sandbox.tools import network, tool_session
from mcp_exec_tools.names import find_close_names, fold, identifier
from mcp_exec_tools.source.installers import (
    INSTALL_SENTENCE,
    NETWORK_LIBRARIES,
    NETWORK_SENTENCE,
    find_installed_packages,
)
from mcp_exec_tools.text import shorten_line

_MAX_WORDS = 50
PoolVersions = Sequence[tuple[str, str]]
"""The pools that have a library, each with the library's version."""
_DISTRIBUTIONS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages whose module has another name."""
_MODULES = {package: module for module, package in _DISTRIBUTIONS.items()}
_MAX_LISTED = 40
_MAX_NAME = 100
_MAX_TEXT = 10_000
_SUFFIX = ".dist-info"
_pools: dict[str, PoolVersions] = {}
_failed: dict[str, None] = {}
"""Libraries that code of the job tried to import, by the names that code imports."""
_MAX_FAILED = 1000
_MAX_ERRORS = 50
_MAX_HINTS = 3
_END_OF_INPUT = "EOF when reading a line"
_NO_INPUT = "A sandbox has no input: pass values in `context` when you create the execution."


def explain_programs() -> None:
    """Make commands that install packages raise ModuleNotFoundError, unless the image has pip.

    Commands that need a network are noted.
    """
    subprocess.Popen.__init__ = _wrap(subprocess.Popen.__init__, place=1)  # type: ignore[method-assign]
    os.system = _wrap(os.system, place=0)


def _wrap(original: Callable[..., Any], *, place: int) -> Callable[..., Any]:
    """Return a function that checks the command, the argument at a place, first."""

    @functools.wraps(original)
    def start(*values: Any, **options: Any) -> Any:
        command = values[place] if len(values) > place else options.get("args", options.get("command", ""))
        text = _join(command)
        _refuse_install(text)
        network.add_program(text)
        return original(*values, **options)

    return start


def _join(command: Any) -> str:
    """Return a command as one text."""
    words = command[:_MAX_WORDS] if isinstance(command, (list, tuple)) else [command]
    return " ".join(os.fsdecode(word) for word in words if isinstance(word, (str, bytes, os.PathLike)))


def _refuse_install(command: str) -> None:
    packages = find_installed_packages(command)
    if packages is not None and not is_installed("pip"):
        raise ModuleNotFoundError(f"`{command[:60]}`: {explain_install(packages)}", name="pip")


def set_libraries(libraries: Mapping[str, PoolVersions]) -> None:
    """Set which pools have which libraries, by the name that code imports."""
    _pools.clear()
    _pools.update(libraries)
    _failed.clear()


def explain_missing_library(name: str) -> str:
    """Return the message of a failed import of a library."""
    hint = _find_pools(name)
    if not hint:
        package = f" (package {_DISTRIBUTIONS[name]})" if name in _DISTRIBUTIONS else ""
        hint = f"this sandbox has {_describe_sandbox()}{package}; {INSTALL_SENTENCE} (docs/platform/images.md)"
    return f"No module named {name[:_MAX_NAME]!r}: {hint}{_describe_use(name)}"


def find_hints(error: BaseException) -> list[str]:
    """Return what an error does not say about the sandbox: it has no input, no network and not all libraries."""
    errors = list_causes(error)
    return [*_find_missing(errors), *network.find_attempts(errors), *_find_input(errors)]


def _find_input(errors: Sequence[BaseException]) -> list[str]:
    is_input = any(isinstance(each, EOFError) and _read_text(each) in ("", _END_OF_INPUT) for each in errors)
    return [_NO_INPUT] if is_input else []


def _find_missing(errors: Sequence[BaseException]) -> list[str]:
    """Return how to get the libraries whose absence has caused an error that does not say it."""
    if isinstance(errors[0], ModuleNotFoundError) and errors[0].name in _failed:
        return []
    text = " ".join(_read_text(each) for each in errors)
    words = set(re.findall(r"[\w.-]+", text.lower())) if _failed else set[str]()
    names = {each.name for each in errors if isinstance(each, ModuleNotFoundError)}
    found = [
        name
        for name in _failed
        if name in names or name.lower() in words or _DISTRIBUTIONS.get(name, name).lower() in words
    ]
    return [f"{describe_missing(name)}." for name in found[:_MAX_HINTS]]


def describe_missing(name: str) -> str:
    """Return that a library is missing and how to get it, without a period."""
    return f"`{name}` is missing: {_find_pools(name) or INSTALL_SENTENCE}{_describe_use(name)}"


def _describe_use(name: str) -> str:
    """Return that a library has no use without a network, or an empty text."""
    return f"; {NETWORK_SENTENCE}" if name.partition(".")[0] in NETWORK_LIBRARIES else ""


def is_known_library(name: str) -> bool:
    """Return whether a name that is no module here is that of a library."""
    return name in _DISTRIBUTIONS or _find_pools(name) != ""


def list_causes(error: BaseException) -> list[BaseException]:
    """Return an error, and those that it was raised from, or while they were handled, or that are its parts."""
    found: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < _MAX_ERRORS:
        current = waiting.pop(0)
        if current is None or id(current) in found:
            continue
        found[id(current)] = current
        parts = current.exceptions[:_MAX_ERRORS] if isinstance(current, BaseExceptionGroup) else ()
        waiting += [current.__cause__, current.__context__, *parts]
    return list(found.values())


def _read_text(error: BaseException) -> str:
    try:
        return str(error)[:_MAX_TEXT]
    except Exception:
        return ""


def explain_install(packages: Sequence[str]) -> str:
    """Return what to do instead of an installation of packages."""
    modules = [_MODULES.get(_normalize(package), package.replace("-", "_")) for package in packages]
    missing = [module for module in modules if not is_installed(module)]
    if modules and not missing:
        return f"{shorten_line(', '.join(packages), _MAX_NAME)} can be imported without an installation"
    known = (_find_pools(module) for module in missing)
    return next((hint for hint in known if hint), f"this sandbox has {_describe_sandbox()}; {INSTALL_SENTENCE}")


def _find_pools(module: str) -> str:
    """Return the pools that have a library as a sentence, or an empty text."""
    package = _DISTRIBUTIONS.get(module, module)
    versions = next((_pools[name] for name in (module, package, _normalize(module)) if _pools.get(name)), ())
    if not versions:
        return ""
    if len(versions) == 1:
        pool, version = versions[0]
        return f"pool `{pool}` has {package} {version}; set poolRef.name to {pool}".replace("  ", " ")
    listed = ", ".join(f"`{pool}` ({version})" for pool, version in versions)
    return f"the pools {listed} have {package}; set poolRef.name to one of them"


def _describe_sandbox() -> str:
    packages = _list_packages()
    if not packages:
        return f"Python {sys.version_info[0]}.{sys.version_info[1]} with the standard library only"
    more = ", ..." if len(packages) > _MAX_LISTED else ""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} with {', '.join(packages[:_MAX_LISTED])}{more}"


@functools.cache
def _list_packages() -> tuple[str, ...]:
    """Return the packages of the image by the names of their folders. The sandbox's own ones are not listed."""
    own = __file__.partition("/mcp_exec_sandbox/")[0]
    names = set[str]()
    for folder in sys.path:
        if folder != own and os.path.isdir(folder):
            names.update(entry for entry in os.listdir(folder) if entry.endswith(_SUFFIX))
    return tuple(sorted(name.removesuffix(_SUFFIX).partition("-")[0].replace("_", "-").lower() for name in names))


def is_installed(module: str) -> bool:
    """Return whether a module can be imported."""
    # Imported for the answer, not in every idle sandbox.
    import importlib.util

    try:
        return module.isidentifier() and importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class ImportHintFinder:
    """Last finder of `sys.meta_path`, called only for modules that no other finder found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None. For `servers`, `servers.X`, `servers.X.Y` and libraries raise an error that says what exists."""
        if name == "servers" or (name.startswith("servers.") and name.count(".") == 1):
            # An error that names the module would be taken by `from servers import X` for its own, and hidden.
            raise ModuleNotFoundError(_explain_missing_server(name))
        package, _, tool = name.rpartition(".")
        if package.startswith("servers.") and (known := getattr(sys.modules.get(package), "__all__", None)):
            # `from servers.X import Y` looks for a module Y too, before it raises that X has no Y.
            raise ModuleNotFoundError(_explain_missing_tool(package, tool, known))
        if path is None and not name.startswith("_") and name not in sys.stdlib_module_names and _is_import():
            if len(_failed) < _MAX_FAILED:
                _failed[name] = None
            raise ModuleNotFoundError(explain_missing_library(name), name=name)
        return None


# Python leaves the frames of its own import system out of the traceback of a failed import, by the file of their code.
ImportHintFinder.find_spec.__code__ = ImportHintFinder.find_spec.__code__.replace(
    co_filename="<frozen importlib._bootstrap_external>"
)


def _is_import() -> bool:
    """Return whether an import calls the finder. `importlib.util.find_spec` has to return None."""
    return sys._getframe(3).f_code.co_name == "_find_and_load_unlocked"  # noqa: SLF001 - nothing else differs


def _explain_missing_tool(package: str, tool: str, known: Sequence[str]) -> str:
    text = f"{package} has no {tool!r}"
    if close := find_close_names(tool, known):
        return f"{text}. Did you mean: {', '.join(close)}?"
    return f"{text}: it has {', '.join(known[:50])}"


def _explain_missing_server(name: str) -> str:
    session = tool_session.get_session()
    if not session.allow:
        return f"No module named {name!r}: this execution may call no tools, as its spec.tools is empty"
    if session.servers is None:
        hint = "`from client import call_mcp_tool` works without them"
        return f"No module named {name!r}: this sandbox has no wrappers yet. {hint}"
    # Imported for the answer, not in every idle sandbox.
    from mcp_exec_tools.patterns import ToolPatterns

    server = name.partition(".")[2]
    packages = {identifier(known): known for known in session.servers}
    is_unknown = server != "" and server not in packages
    close = find_close_names(server, packages) if is_unknown else []
    if is_unknown and ToolPatterns(session.allow).match_server(server):
        text = "there is no such server; those with tools that this execution may use"
    elif is_unknown:
        # One text for a server of others and for none, so that nobody learns of servers that they may not use.
        text = "it is none of the servers that this execution may use"
    else:
        text = "this execution may use"
    text += f": {', '.join(session.servers[:_MAX_LISTED]) or 'none'}"
    hint = f". Did you mean: servers.{close[0]}?" if close else ""
    return f"No module named {name!r}: {text} (spec.tools: {', '.join(session.allow[:20])}){hint}"


class LazyPackage(ModuleType):
    """Package that has a tool's function where Python would put the module of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system binds each module that it has loaded to its package, also where that has a function.
        if isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}":
            value = value.__dict__.get(name, value)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__.get("__all__", ())})


def load_lazily(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Make a package load its modules on first use, and return its `__getattr__`.

    A name in another spelling is found too: `executeSQL` and `ExecuteSql` are `execute_sql`, unless several functions
    have this spelling.

    Args:
        package: the name of the package, which is being imported.
        names: what each module defines; its function has the module's name.
    """
    module = sys.modules[package]
    module.__class__ = LazyPackage
    homes = {name: home for home, defined in names.items() for name in defined}

    def load(name: str) -> Any:
        own = name if name in homes else None if name.startswith("_") else _find_spelling(name, names)
        if own is None and name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        if own is None:
            # Without a name, as CPython's traceback has a hint of its own for an error with one.
            raise AttributeError(_explain_missing_tool(package, name, sorted(names)))
        value = getattr(importlib.import_module(f"{package}.{homes[own]}"), own)
        module.__dict__[name] = value
        return value

    return load


def _find_spelling(name: str, functions: Mapping[str, Any]) -> str | None:
    folded = fold(name)
    found = [function for function in functions if fold(function) == folded] if folded else []
    return found[0] if len(found) == 1 else None
