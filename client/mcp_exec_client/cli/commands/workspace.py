"""Files: workspaces that executions find and leave behind, and artifacts that they produced."""

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.connection import open_client
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    Subcommands,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    add_repeated,
    run_interruptible,
    set_completer,
)
from mcp_exec_client.cli.output import (
    ARTIFACTS,
    FILES,
    FORMATS,
    VERSIONS,
    WORKSPACES,
    TableColumn,
    print_data,
    print_line,
    print_objects,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcp_exec_client.client import AsyncClient
    from mcp_exec_client.state.results import SyncResult


ClientAction = Callable[["AsyncClient", argparse.Namespace], Awaitable[None]]
_LIST: Final = """Lists the caller's workspaces, or with NAME the files of one.

examples:
  mcp-exec workspace list
  mcp-exec workspace list sales -o json
"""
_GET: Final = """Writes a workspace's files to a local folder, or one file to a local file.

Only files that differ travel. With - as TARGET, one file is written to standard output. Code in a sandbox may have
written what programs here execute because it is there. So these are left out and named, and --all writes them, too:
names that begin with a dot, as .git, .vscode and .envrc do, names that stand for others in Windows (GIT~1, _vimrc,
AUX), bare repositories of git, and files such as *.pth, conftest.py, pyvenv.cfg, *.code-workspace and AGENTS.md.

examples:
  mcp-exec workspace get sales ./sales
  mcp-exec workspace get sales -f report.csv -
  mcp-exec workspace get sales ./before --version 3
"""
_PUT: Final = """Writes one local file into a workspace, which is created if it does not exist.

examples:
  mcp-exec workspace put sales data.csv
  mcp-exec workspace put sales data.csv --path input/data.csv
"""
_SYNC: Final = """Brings a local folder's files into a workspace. Only files that changed travel.

Links, .git, .hg, .svn, .venv, __pycache__ and node_modules are left out. --delete keeps the workspace's files of these
names and those that `get` leaves out.

example:
  mcp-exec workspace sync sales ./sales --delete
"""
_VERSIONS: Final = """Lists the versions of a workspace that can be read and restored, newest first.

example:
  mcp-exec workspace versions sales
"""
_RESTORE: Final = """Saves the files of an earlier version as a new one, so that nothing is lost.

example:
  mcp-exec workspace restore sales 3
"""
_RM: Final = """Deletes a workspace with all its versions, or with -f files of it.

examples:
  mcp-exec workspace rm sales
  mcp-exec workspace rm sales -f old.csv -f drafts
"""
_LIST_ARTIFACTS: Final = """Lists the artifacts of an execution, with links that work in a browser for 15 minutes.

examples:
  mcp-exec artifacts list exec-01k9x3v5t8q2
  mcp-exec artifacts list exec-01k9x3v5t8q2 -o wide
"""
_GET_ARTIFACTS: Final = """Writes artifacts of an execution to a folder: those with these ids or names, or all.

examples:
  mcp-exec artifacts get exec-01k9x3v5t8q2
  mcp-exec artifacts get exec-01k9x3v5t8q2 sales.png --to ./figures
"""


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "workspace", summary="files that stay: list, get, put, sync, versions, restore, rm")
    listing = _add(group, "list", _list, "list workspaces, or the files of one", _LIST, is_optional=True)
    listing.add_argument("--version", metavar="N", type=int, help="with NAME: another version than the newest")
    add_output_option(listing, *FORMATS)
    get = _add(group, "get", _get, "write files of a workspace to a local folder", _GET)
    set_completer(get.add_argument("target", metavar="TARGET", help="local folder; with -f, file or -"), "file")
    get.add_argument("-f", "--file", metavar="PATH", help="one file of the workspace")
    get.add_argument("--all", action="store_true", help="also write hidden files and what programs here may execute")
    get.add_argument("--version", metavar="N", type=int, help="another version than the newest")
    put = _add(group, "put", _put, "write a local file into a workspace", _PUT)
    set_completer(put.add_argument("source", metavar="FILE", type=Path, help="local file"), "file")
    put.add_argument("--path", metavar="PATH", help="path in the workspace; default: the file's name")
    sync = _add(group, "sync", _sync, "bring a local folder's files into a workspace", _SYNC)
    set_completer(sync.add_argument("folder", metavar="FOLDER", type=Path, help="local folder"), "file")
    sync.add_argument("--delete", action="store_true", help="delete files of the workspace that the folder lacks")
    add_output_option(sync, "text", "json", "yaml")
    versions = _add(group, "versions", _list_versions, "list the versions of a workspace", _VERSIONS)
    add_output_option(versions, *FORMATS)
    restore = _add(group, "restore", _restore, "save an earlier version as a new one", _RESTORE)
    restore.add_argument("version", metavar="N", type=int, help="number of the version")
    rm = _add(group, "rm", _remove, "delete a workspace, or files of it", _RM)
    add_repeated(rm, "-f", "--file", metavar="PATH", help="file or folder")
    _add_artifacts(commands)


def _add(
    group: Subcommands, name: str, action: ClientAction, summary: str, description: str, *, is_optional: bool = False
) -> argparse.ArgumentParser:
    command = add_command(group, name, summary=summary, description=description)
    command.add_argument("name", metavar="NAME", nargs="?" if is_optional else None, help="name of the workspace")
    command.add_argument("--user", metavar="USER", help="user whose workspaces are meant")
    add_client_options(command)
    command.set_defaults(run=lambda options: run_interruptible(_run(action, options)))
    return command


async def _run(action: ClientAction, options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        try:
            await action(client, options)
        except OSError as error:
            raise CommandError(f"{error.filename or ''}: {error.strerror or error}", ExitCode.USAGE) from error
        except ValueError as error:
            raise CommandError(str(error), ExitCode.USAGE) from error


async def _list(client: "AsyncClient", options: argparse.Namespace) -> None:
    if options.name is None:
        if options.version is not None:
            raise CommandError("--version needs NAME", ExitCode.USAGE)
        workspaces = await client.workspaces.list(user=options.user)
        _print(workspaces, options, WORKSPACES, "name", "no workspaces")
        return
    files = client.files.list(options.name, version=options.version, user=options.user)
    _print([each async for each in files], options, FILES, "path", f"{options.name} has no files")


def _print(
    found: "Sequence[BaseModel]",
    options: argparse.Namespace,
    columns: tuple[TableColumn, ...],
    name: str,
    empty: str,
) -> None:
    items = [each.model_dump(mode="json", by_alias=True) for each in found]
    print_objects(items, form=options.output, columns=columns, name=lambda item: str(item[name]), empty=empty)


async def _get(client: "AsyncClient", options: argparse.Namespace) -> None:
    version, user = options.version, options.user
    if options.file is None:
        if options.target == "-":
            raise CommandError("- needs -f with one file", ExitCode.USAGE)
        from mcp_exec_client.state.folders import UNSAFE

        pulled = await client.files.pull(
            options.name, options.target, version=version, exclude=() if options.all else UNSAFE, user=user
        )
        _print_result(pulled, options)
    elif options.target == "-":
        content = await client.files.read(options.name, options.file, version=version, user=user)
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        target = Path(options.target)
        print_line(str(await client.files.save(options.name, options.file, target, version=version, user=user)))


async def _put(client: "AsyncClient", options: argparse.Namespace) -> None:
    path = options.path or options.source.name
    saved = await client.files.write(options.name, path, options.source, user=options.user)
    print_line(f"{path} is in version {saved.version} of {options.name}")


async def _sync(client: "AsyncClient", options: argparse.Namespace) -> None:
    import asyncio

    if not await asyncio.to_thread(options.folder.is_dir):
        raise CommandError(f"{options.folder} is not a folder", ExitCode.USAGE)
    result = await client.files.sync(options.name, options.folder, delete=options.delete, user=options.user)
    if options.output in ("json", "yaml"):
        print_data(result.model_dump(mode="json", by_alias=True), form=options.output)
    else:
        _print_result(result, options)


def _print_result(result: "SyncResult", options: argparse.Namespace) -> None:
    for verb, paths in (("sent", result.uploaded), ("received", result.downloaded), ("deleted", result.deleted)):
        for path in paths:
            print_line(f"{verb} {path}")
    for path in result.left_out:
        print_line(f"left out {path}; --all writes it")
    print_line(f"{result.unchanged} files unchanged; version {result.version} of {options.name}")


async def _list_versions(client: "AsyncClient", options: argparse.Namespace) -> None:
    versions = await client.workspaces.versions(options.name, user=options.user)
    _print(versions, options, VERSIONS, "version", f"{options.name} has no versions")


async def _restore(client: "AsyncClient", options: argparse.Namespace) -> None:
    saved = await client.workspaces.restore(options.name, options.version, user=options.user)
    print_line(f"version {saved.version} of {options.name} has the files of version {options.version}")


async def _remove(client: "AsyncClient", options: argparse.Namespace) -> None:
    for path in options.file:
        saved = await client.files.delete(options.name, path, user=options.user)
        print_line(f"{path} is deleted in version {saved.version} of {options.name}")
    if not options.file:
        await client.workspaces.delete(options.name, user=options.user)
        print_line(f"{options.name} is deleted")


def _add_artifacts(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "artifacts", summary="list and get what executions produced")
    listing = add_command(
        group, "list", summary="list artifacts of an execution", description=_LIST_ARTIFACTS, run=_list_artifacts
    )
    add_output_option(listing, *FORMATS)
    get = add_command(
        group, "get", summary="write artifacts to a folder", description=_GET_ARTIFACTS, run=_get_artifacts
    )
    for command in (listing, get):
        set_completer(command.add_argument("name", metavar="NAME", help="name of the execution"), "execution")
        add_client_options(command)
    get.add_argument("artifacts", metavar="ARTIFACT", nargs="*", help="id or name; default: all")
    target = get.add_argument("--to", metavar="FOLDER", type=Path, default=Path(), help="folder; default: this one")
    set_completer(target, "file")


async def _list_artifacts(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        found = await client.artifacts.list(options.name)
    items = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in found]
    empty = f"{options.name} has no artifacts"
    print_objects(items, form=options.output, columns=ARTIFACTS, name=lambda item: str(item["id"]), empty=empty)


async def _get_artifacts(options: argparse.Namespace) -> None:
    import asyncio

    async with open_client(options) as client:
        try:
            await asyncio.to_thread(options.to.mkdir, parents=True, exist_ok=True)
            await _save_artifacts(client, options)
        except OSError as error:
            raise CommandError(f"{error.filename or ''}: {error.strerror or error}", ExitCode.USAGE) from error


async def _save_artifacts(client: "AsyncClient", options: argparse.Namespace) -> None:
    if options.artifacts:
        found = [await client.artifacts.get(options.name, artifact) for artifact in options.artifacts]
    else:
        found = list(await client.artifacts.list(options.name))
    for artifact in found:
        print_line(str(await artifact.save(options.to)))
