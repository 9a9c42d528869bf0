"""`mcp-exec servers generate`: writes typed wrappers of MCP servers into a folder.

It writes one package per server and one file per tool: `servers/github/create_issue.py`, or with --language typescript
`servers/github/create_issue.d.ts`. The tools come from one of --from-file, --from-url, --from-command and
--from-toolserver. Generated files of removed tools are deleted; files without the header of generated files are never
changed.
"""

import argparse
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mcp_exec_api.constants import LANGUAGES
from mcp_exec_client.cli.connection import resolve_gateway
from mcp_exec_client.cli.exit_codes import CommandError
from mcp_exec_client.cli.options import (
    Subcommands,
    add_command,
    add_gateway_options,
    add_number,
    add_repeated,
    run_interruptible,
)

if TYPE_CHECKING:
    from mcp_exec_tools.catalog import Catalog


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_INIT: Final = '"""MCP servers: one package per server, with one function per tool."""'
_PATTERNS: Final = {"python": ("*.py", "*.pyi"), "typescript": ("*.js", "*.d.ts")}
"""Files of a package that may be generated ones, by language."""


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "generate", summary="write typed wrappers", description=__doc__)
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--from-file", metavar="CATALOG", type=Path, nargs="+", help="JSON files with results of `tools/list`"
    )
    source.add_argument("--from-url", metavar="URL", help="a live server, by streamable HTTP")
    source.add_argument("--from-command", metavar="COMMAND", help="a server to start, such as 'npx -y some-server'")
    source.add_argument("--from-toolserver", metavar="NAME", help="a ToolServer, through a gateway")
    command.add_argument(
        "--name", help="name of the server in code; default: the name in the file, or from the address"
    )
    command.add_argument("--out", metavar="DIR", type=Path, default=Path("servers"), help="default: servers")
    command.add_argument("--language", choices=LANGUAGES, default=LANGUAGES[0], help="default: %(default)s")
    command.add_argument("--stubs", action=argparse.BooleanOptionalAction, default=True, help="Python's .pyi files too")
    command.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file would change")
    add_repeated(
        command,
        "--header-env",
        metavar="NAME=VARIABLE",
        help="with --from-url: a header whose value is in this environment variable",
    )
    add_repeated(
        command,
        "--env",
        metavar="VARIABLE",
        help="with --from-command: an environment variable that is passed to the server",
    )
    add_gateway_options(command, note="with --from-toolserver: ")
    add_number(command, "--timeout", 0.001, 3600, metavar="SECONDS", default=60.0, help="time limit of each server")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError."""
    from mcp_exec_tools.wrappers import build_files

    _check_options(options)
    catalogs = run_interruptible(_load_catalogs(options))
    if invalid := [catalog.server for catalog in catalogs if not _NAME.fullmatch(catalog.server)]:
        message = f"{invalid[0]!r} is not a server name: choose one of letters, digits, - and _ with --name"
        raise CommandError(message)
    if len({catalog.server for catalog in catalogs}) < len(catalogs):
        raise CommandError("two catalogs have the same server name")
    files = build_files(catalogs, language=options.language, stubs=options.stubs)
    files |= _build_index(options.out, files, language=options.language)
    try:
        changes = plan_changes(options.out, files, language=options.language)
        if not options.check:
            apply_changes(options.out, changes)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    if changes and options.check:
        raise CommandError(f"{options.out} is not up to date: {', '.join(list(changes)[:10])}")
    tools = sum(len(catalog.tools) for catalog in catalogs)
    print(f"{options.out}: {tools} tools of {len(catalogs)} servers, {len(changes)} files changed")  # noqa: T201


def _build_index(folder: Path, files: Mapping[str, str], *, language: str) -> dict[str, str]:
    """Return the files of the package of all servers, with those that the folder has already."""
    from mcp_exec_tools.wrappers import HEADERS, format_index

    if language == "python":
        return {"__init__.py": f"{HEADERS[language]}\n{_INIT}\n"}
    present = {path.parent.name for path in folder.glob("*/mod.js") if _is_generated(_read_text(path) or "")}
    return format_index(present | {name.partition("/")[0] for name in files})


async def _load_catalogs(options: argparse.Namespace) -> "list[Catalog]":
    from mcp_exec_client.cli.backends import catalog_sources

    if options.from_file:
        return [catalog_sources.read_file(path, options.name) for path in options.from_file]
    if options.from_url:
        name = options.name or _name_from_url(options.from_url)
        headers = dict(_parse_header(text) for text in options.header_env)
        catalog = await catalog_sources.fetch_from_url(options.from_url, name, headers=headers, seconds=options.timeout)
    elif options.from_command:
        environment = {name: _read_variable(name) for name in options.env}
        catalog = await catalog_sources.fetch_from_command(
            options.from_command, options.name, environment=environment, seconds=options.timeout
        )
    else:
        connection = resolve_gateway(options)
        gateway = connection.require_gateway("--from-toolserver")
        catalog = await catalog_sources.fetch_from_gateway(
            gateway, options.from_toolserver, key=connection.api_key, seconds=options.timeout
        )
    return [catalog]


def _check_options(options: argparse.Namespace) -> None:
    """Raise CommandError for options that do not apply to the source."""
    for option, value, source, name in (
        ("--header-env", options.header_env, options.from_url, "--from-url"),
        ("--env", options.env, options.from_command, "--from-command"),
        ("--gateway", options.gateway, options.from_toolserver, "--from-toolserver"),
        ("--api-key", options.api_key, options.from_toolserver, "--from-toolserver"),
        ("--profile", options.profile, options.from_toolserver, "--from-toolserver"),
    ):
        if value and not source:
            raise CommandError(f"{option} is allowed only with {name}")
    if options.name and options.from_file and len(options.from_file) > 1:
        raise CommandError("--name is allowed only with a single file")
    if options.name and options.from_toolserver:
        raise CommandError("--name is not allowed with --from-toolserver: code uses the ToolServer's own name")
    if options.from_command and not options.name:
        raise CommandError("--from-command needs --name: the command does not imply a server name")


def _parse_header(text: str) -> tuple[str, str]:
    name, separator, variable = text.partition("=")
    if not (name and separator and variable):
        example = "Authorization=GITHUB_AUTHORIZATION"
        raise CommandError(f"--header-env {text}: it must be NAME=VARIABLE, such as {example}")
    return name, _read_variable(variable)


def _read_variable(name: str) -> str:
    if name not in os.environ:
        raise CommandError(f"the environment variable {name} is not set")
    return os.environ[name]


def _name_from_url(url: str) -> str:
    """Return the first label of the host that is neither `mcp` nor `www`. Raises CommandError if it is no name."""
    labels = [label for label in (urlsplit(url).hostname or "").split(".") if label not in ("mcp", "www")]
    if not labels or not _NAME.fullmatch(labels[0]) or labels[0].isdecimal():
        raise CommandError("--name is needed: no server name can be derived from the address")
    return labels[0]


def plan_changes(folder: Path, files: Mapping[str, str], *, language: str) -> dict[str, str | None]:
    """Return what to write (the text) and to remove (None), by path, so that the folder has these generated files.

    In the packages of these files, all other generated files of the language are removed. Files without the header of
    generated ones stay. Raises ValueError if such a file has a path that is needed.
    """
    changes: dict[str, str | None] = {}
    for name, text in sorted(files.items()):
        path = _path_inside(folder, name)
        present = _read_text(path)
        if present == text:
            continue
        if present and not _is_generated(present):
            raise ValueError(f"{path} exists and was not generated: move it, or choose another folder")
        changes[name] = text
    for package in sorted({name.partition("/")[0] for name in files if "/" in name}):
        for path in _list_sources(folder / package, language):
            name = path.relative_to(folder).as_posix()
            if name not in files and _is_generated(_read_text(path) or ""):
                changes[name] = None
    return changes


def apply_changes(folder: Path, changes: Mapping[str, str | None]) -> None:
    """Write and remove files. Each file is replaced atomically."""
    for name, text in changes.items():
        path = _path_inside(folder, name)
        if text is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, text)


def _write(path: Path, text: str) -> None:
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _path_inside(folder: Path, name: str) -> Path:
    """Return a file's path. Raises ValueError if it is outside the folder, also by a symbolic link."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} is not in {folder}")
    return path


def _read_text(path: Path) -> str | None:
    """Return a file's text, None if it does not exist, or a text that is never generated if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return "\0"


def _is_generated(text: str) -> bool:
    from mcp_exec_tools.wrappers import HEADERS

    return text.startswith(tuple(HEADERS.values()))


def _list_sources(folder: Path, language: str) -> Iterator[Path]:
    for pattern in _PATTERNS[language]:
        yield from sorted(folder.glob(pattern))
