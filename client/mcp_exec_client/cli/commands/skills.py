"""Skills: versions of reusable code."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_exec_api.constants import SkillState
from mcp_exec_client.cli.connection import open_client
from mcp_exec_client.cli.execution_options import add_named, split_skill
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    Subcommands,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    set_completer,
)
from mcp_exec_client.cli.output import (
    FORMATS,
    SKILL_VERSIONS,
    SKILLS,
    TableColumn,
    TextWriter,
    print_data,
    print_line,
    print_objects,
)

if TYPE_CHECKING:
    from mcp_exec_client.client import AsyncClient

_LIST: Final = """Lists versions of skills: all but drafts of other callers.

examples:
  mcp-exec skills list
  mcp-exec skills list --as-approver
"""
_SEARCH: Final = """Searches skills by what they do, best first.

example:
  mcp-exec skills search "remove duplicate rows"
"""
_VERSIONS: Final = """Lists the versions of a skill, newest first: all but drafts of other callers.

example:
  mcp-exec skills versions profile-table
"""
_SHOW: Final = """Shows a version of a skill with its code; without a version, the newest.

example:
  mcp-exec skills show profile-table-v2
"""
_SAVE: Final = """Saves skills as drafts: from folders with the files SKILL.md and scripts/run.py, or from an execution.

A folder whose content is that of the newest version is not saved again.

examples:
  mcp-exec skills save skills/profile-table skills/chart
  mcp-exec skills save --from-execution exec-01k9x3v5t8q2 --name weekly-report --description "Make the weekly report."
"""
_APPROVE: Final = """Approves a version of a skill, if it has the content that you read. Only approvers may do this.

examples:
  mcp-exec skills show profile-table-v2 --as-approver
  mcp-exec skills approve profile-table-v2 --digest sha256:...
"""
_DEPRECATE: Final = """Deprecates versions of skills. Only approvers may do this.

example:
  mcp-exec skills deprecate profile-table-v2
"""
_EXPORT: Final = """Writes the folders of versions of skills, or of the newest approved version of each skill.

examples:
  mcp-exec skills export profile-table-v2 --to skills
  mcp-exec skills export --approved --to skills
"""
_DELETE: Final = """Deletes versions of skills: drafts of one's own, or for approvers any.

example:
  mcp-exec skills delete profile-table-v1
"""
_RUN: Final = """Runs a skill and prints its result; without a version, the newest approved one.

example:
  mcp-exec skills run text-statistics --arguments '{"text": "one two"}'
"""


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "skills", summary="list, save, review, export and run skills")
    listing = add_command(group, "list", summary="list skills", description=_LIST, run=_list)
    listing.add_argument("--state", choices=tuple(map(str, SkillState)), help="only versions in this state")
    search = add_command(group, "search", summary="search skills", description=_SEARCH, run=_list)
    search.add_argument("query", metavar="QUERY", help="what the skills should do")
    versions = add_command(
        group, "versions", summary="list the versions of a skill", description=_VERSIONS, run=_versions
    )
    versions.add_argument("name", metavar="NAME", help="name of the skill")
    show = add_command(group, "show", summary="show a version with its code", description=_SHOW, run=_show)
    save = add_command(group, "save", summary="save skills as drafts", description=_SAVE, run=_save)
    folders = save.add_argument("folders", metavar="FOLDER", type=Path, nargs="*", help="folder with a file SKILL.md")
    set_completer(folders, "file")
    execution = save.add_argument("--from-execution", metavar="NAME", help="an execution that succeeded")
    set_completer(execution, "execution")
    save.add_argument("--name", metavar="NAME", help="name of the skill, with --from-execution")
    save.add_argument("--description", metavar="TEXT", help="what it does, with --from-execution")
    save.add_argument("--user", metavar="USER", help="user on whose behalf it is saved")
    approve = add_command(group, "approve", summary="approve a version", description=_APPROVE, run=_approve)
    approve.add_argument("--digest", metavar="DIGEST", required=True, help="digest of what you read: `show` prints it")
    deprecate = add_command(group, "deprecate", summary="deprecate versions", description=_DEPRECATE, run=_deprecate)
    for command in (approve, deprecate):
        command.add_argument("--comment", metavar="TEXT", help="reason for the decision")
    export = add_command(group, "export", summary="write folders of skills", description=_EXPORT, run=_export)
    to = export.add_argument("--to", metavar="FOLDER", type=Path, default=Path(), help="folder; default: this one")
    set_completer(to, "file")
    export.add_argument("--approved", action="store_true", help="the newest approved version of each skill")
    delete = add_command(group, "delete", summary="delete versions", description=_DELETE, run=_delete)
    run = add_command(group, "run", summary="run a skill", description=_RUN, run=_run)
    run.add_argument("--arguments", metavar="JSON", default="{}", help="arguments as a JSON object; - reads stdin")
    add_named(run, "tools", "pool", "language")
    approve.add_argument("name", metavar="NAME-vVERSION", help="version of a skill")
    for command in (show, run):
        command.add_argument("name", metavar="NAME", help="name of the skill, or NAME-vVERSION")
    for command, number in ((deprecate, "+"), (delete, "+"), (export, "*")):
        command.add_argument("names", metavar="NAME-vVERSION", nargs=number, help="version of a skill")
    for command in (listing, search, versions, show):
        command.add_argument("--as-approver", action="store_true", help="include drafts of other callers")
        add_output_option(command, *FORMATS)
    for command in (listing, search, versions, show, save, approve, deprecate, export, delete, run):
        add_client_options(command)


async def _list(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        state = getattr(options, "state", None)
        found = await client.skills.list(getattr(options, "query", ""), state=state, as_approver=options.as_approver)
    query = getattr(options, "query", "")
    _print(found, SKILLS, options, empty=f"no skill matches {query!r}" if query else "no skills")


async def _versions(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        found = await client.skills.versions(options.name, as_approver=options.as_approver)
    _print(found, SKILL_VERSIONS, options, empty=f"{options.name} has no versions")


def _print(found: Sequence[Any], columns: Sequence[TableColumn], options: argparse.Namespace, *, empty: str) -> None:
    print_objects(
        [_to_json(item) for item in found],
        form=options.output,
        columns=columns,
        name=lambda item: f"{item['name']}-v{item['version']}",
        empty=empty,
    )


async def _show(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        name, version = split_skill(options.name)
        if version is None:
            found = await client.skills.list(name=name, as_approver=options.as_approver)
            if not found:
                raise CommandError(f"there is no skill {name}", ExitCode.REFUSED)
            version = found[0].version
        found_version = await client.skills.get(name, version, as_approver=options.as_approver)
    skill = _to_json(found_version)
    if options.output in ("json", "yaml"):
        print_data(skill, form=options.output)
    else:
        print_objects([skill], form=options.output, columns=SKILLS, name=lambda item: str(item["name"]))
        print_line(f"digest: {skill['digest']}")  # before the code, which could imitate it
        for finding in found_version.code_findings:
            print_line(f"finding: {finding}")
        for line in (found_version.code or "").splitlines():
            print_line(line)


async def _save(options: argparse.Namespace) -> None:
    if bool(options.folders) == bool(options.from_execution):
        raise CommandError("give folders, or --from-execution", ExitCode.USAGE)
    if options.from_execution and not (options.name and options.description):
        raise CommandError("--from-execution needs --name and --description", ExitCode.USAGE)
    async with open_client(options) as client:
        if options.from_execution:
            name, execution = options.name, options.from_execution
            saved = await client.skills.save(name, options.description, from_execution=execution)
            print_line(f"{saved.name}-v{saved.version} is a draft")
            return
        for folder in options.folders:
            await _save_folder(client, folder, user=options.user)


async def _save_folder(client: "AsyncClient", folder: Path, *, user: str | None) -> None:
    """Save a folder unless its content is that of the newest version. Raises CommandError."""
    from mcp_exec_client.errors import NotFound
    from mcp_exec_client.state.skills import list_folder
    from mcp_exec_common.skills.folder import SkillFolder, read_archive
    from mcp_exec_common.skills.interface import InvalidSkill

    try:
        own = SkillFolder.from_files({path: (folder / path).read_bytes().decode() for path in list_folder(folder)})
    except OSError as error:
        message = f"{error.filename or folder}: {error.strerror or error}"
        raise CommandError(message, ExitCode.USAGE) from error
    except (InvalidSkill, UnicodeDecodeError) as error:
        raise CommandError(f"{folder}: {error}", ExitCode.USAGE) from error
    try:
        newest = (await client.skills.versions(own.name))[0] if own.name else None
    except NotFound:
        newest = None
    if newest and read_archive(await client.skills.export(newest.name, newest.version)) == own:
        print_line(f"{newest.name}-v{newest.version} has this content already, and is {newest.state}")
        return
    saved = await client.skills.save_folder(folder, user=user)
    print_line(f"{saved.name}-v{saved.version} is a draft")


async def _approve(options: argparse.Namespace) -> None:
    """Approve what was read: between `show` and now, an author may have replaced a draft under the same name."""
    name, version = _split_version(options.name)
    async with open_client(options) as client:
        skill = await client.skills.approve(name, version, digest=options.digest, comment=options.comment)
    print_line(f"{name}-v{version} is {skill.state}")


async def _deprecate(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        for text in options.names:
            name, version = _split_version(text)
            skill = await client.skills.deprecate(name, version, comment=options.comment)
            print_line(f"{name}-v{version} is {skill.state}")


async def _export(options: argparse.Namespace) -> None:
    if bool(options.names) == options.approved:
        raise CommandError("give versions, or --approved", ExitCode.USAGE)
    async with open_client(options) as client:
        chosen = [_split_version(name) for name in options.names]
        if options.approved:
            newest = {each.name: each.version for each in reversed(await client.skills.list(state="Approved"))}
            chosen = sorted(newest.items())
        for name, version in chosen:
            _write_folder(await client.skills.export(name, version), options.to / name)


def _write_folder(archive: bytes, folder: Path) -> None:
    """Write the files of an archive and print the folder. Raises CommandError."""
    import tarfile

    from mcp_exec_client.state.skills import SKILL_FILE, read_members

    try:
        files = read_members(archive)
        if SKILL_FILE not in files:
            raise tarfile.TarError(f"it has no {SKILL_FILE}")
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except tarfile.TarError as error:
        raise CommandError(f"the gateway sent no folder of a skill: {error}", ExitCode.UNAVAILABLE) from error
    except OSError as error:
        raise CommandError(f"{error.filename or ''}: {error.strerror or error}", ExitCode.USAGE) from error
    print_line(str(folder))


async def _delete(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        for text in options.names:
            name, version = _split_version(text)
            await client.skills.delete(name, version)
            print_line(f"{name}-v{version} is deleted")


async def _run(options: argparse.Namespace) -> None:
    name, version = split_skill(options.name)
    text = sys.stdin.read() if options.arguments == "-" else options.arguments
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise CommandError(f"--arguments is not JSON: {error}", ExitCode.USAGE) from None
    if not isinstance(arguments, dict):
        raise CommandError("--arguments must be a JSON object", ExitCode.USAGE)
    more: dict[str, Any] = {"tools": options.tools}
    more |= {name: value for name in ("pool", "language") if (value := getattr(options, name)) is not None}
    async with open_client(options) as client:
        done = await client.skills.run(name, arguments, version=version, **more)
    TextWriter(sys.stdout).write(done.stdout)
    if done.phase != "Succeeded":
        message = done.error.summary if done.error else str(done.reason)
        raise CommandError(f"{done.name} is {done.phase}: {message}", ExitCode.FAILED)
    if done.result is not None:
        print_data(done.result, form="json")


def _to_json(skill: Any) -> dict[str, Any]:
    fields: dict[str, Any] = skill.model_dump(mode="json", by_alias=True, exclude_none=True)
    return fields


def _split_version(text: str) -> tuple[str, int]:
    name, version = split_skill(text)
    if version is None:
        raise CommandError(f"{text} names no version: write {text}-v1", ExitCode.USAGE)
    return name, version
