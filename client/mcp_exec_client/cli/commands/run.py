"""Runs code in a sandbox and shows its output as it comes.

Standard output and the result go to standard output, all else to standard error. The exit code says how it ended:
0 if it succeeded, 1 if the code failed, 3 if it was refused, 4 if gateway or API server failed, 5 if the run failed
otherwise, 124 if it timed out, 130 if it was cancelled. An interrupt (Ctrl-C) or SIGTERM
cancels the execution, and the command ends within seconds, even if nobody answers.

examples:
  mcp-exec run program.py --tool 'github.*' --context owner=octocat --context limit:=10
  mcp-exec run -c 'sum(range(10))'
  mcp-exec run - --timeout 120 < program.py
  mcp-exec run program.ts --tool 'github.*'
  mcp-exec run --language typescript -c 'const sum: number = 40 + 2; sum'
  mcp-exec run --session analysis -c 'rows = [1, 2]'
  mcp-exec run --skill-ref text-statistics --context text='one two'
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from mcp_exec_api.constants import DEFAULT_LANGUAGE, SOURCE_ENDINGS, Language
from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS
from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.execution_options import add_option, read_given
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    MAX_WAIT_SECONDS,
    Object,
    Subcommands,
    add_command,
    add_connection_options,
    add_number,
    run_interruptible,
    set_completer,
)
from mcp_exec_client.cli.output import print_data, print_line
from mcp_exec_client.cli.printer import EventPrinter
from mcp_exec_client.options import RunOptions, build_body

if TYPE_CHECKING:
    from mcp_exec_client.cli.connection import Backend
    from mcp_exec_client.cli.follower import Follower

_MAX_BYTES: Final = 256 * 1024
"""The API's limits of code and of context."""
_CODE_OF_SKILL: Final = "skill_ref"
"""Option that stands for the code."""


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "run", summary="run code", description=__doc__)
    code = command.add_mutually_exclusive_group(required=True)
    set_completer(
        code.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            help="file with code, in the language of its ending: .py or .ts; - is standard input",
        ),
        "file",
    )
    code.add_argument("-c", "--code", metavar="CODE", help="code")
    add_option(code, EXECUTION_OPTIONS[_CODE_OF_SKILL])
    _add_execution_options(command)
    command.add_argument("-d", "--detach", action="store_true", help="print the execution's name and do not wait")
    add_number(
        command,
        "--wait",
        1,
        MAX_WAIT_SECONDS,
        metavar="SECONDS",
        default=3600.0,
        help="longest time to wait for the end, waits for a pod and for approvals included",
    )
    command.add_argument(
        "--no-ask", action="store_true", help="never ask for approvals, only print the command that decides"
    )
    command.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=("text", "json", "yaml", "name"),
        default="text",
        help="text: output as it comes; json, yaml, name: the execution after its end; default: text",
    )
    add_connection_options(command)
    command.set_defaults(run=run)


def _add_execution_options(command: argparse.ArgumentParser) -> None:
    """Add the options that become fields of the execution."""
    set_completer(
        command.add_argument("--context-file", metavar="FILE", type=Path, help="file with a JSON object of variables"),
        "file",
    )
    for option in EXECUTION_OPTIONS.values():
        if option.name != _CODE_OF_SKILL:
            add_option(command, option)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError with the exit code of the run."""
    run_interruptible(_run(options, _build_execution(options)))


async def _run(options: argparse.Namespace, new: Object) -> None:
    from mcp_exec_client.cli.follower import check_end, submit

    async with open_backend(options) as backend:
        if options.detach:
            await _detach(options, backend, new)
            return
        name = await submit(backend, new)
        end = await _build_follower(options, backend, name).run(seconds=options.wait)
        if options.output != "text":
            _print_execution(await backend.get(name), form=options.output)
        check_end(name, end)


async def _detach(options: argparse.Namespace, backend: "Backend", new: Object) -> None:
    execution = await backend.submit(new)
    if not backend.streams_output:  # a gateway refuses namespaces that are not served
        await _build_follower(options, backend, execution["name"]).confirm()
    _print_execution(execution, form=options.output)


def _print_execution(execution: Object, *, form: str) -> None:
    if form in ("json", "yaml"):
        print_data(execution, form=form)
    else:
        print_line(execution["name"])


def _build_follower(options: argparse.Namespace, backend: "Backend", name: str) -> "Follower":
    from mcp_exec_client.cli.follower import Follower

    streams = options.output == "text"
    printer = EventPrinter(name, program=options.program, with_output=streams, with_result=streams)
    asks = not options.no_ask and sys.stdin.isatty() and sys.stderr.isatty()
    return Follower(backend=backend, name=name, printer=printer, cancels=True, asks=asks)


def _build_execution(options: argparse.Namespace) -> Object:
    """Return the body of the request."""
    given = read_given(options)
    if context := _read_context(options):
        given["context"] = context
    if "language" not in given and (language := _find_language(options.file)) is not None:
        # a pool that is named must run it; without one, the default one runs the default language
        given |= {"language": language} if language != DEFAULT_LANGUAGE or "pool" in given else {}
    return build_body(_read_code(options), cast(RunOptions, given))


def _find_language(file: str | None) -> Language | None:
    """Return the language of a file by its ending; None if that says nothing."""
    return next((each for each, ending in SOURCE_ENDINGS.items() if (file or "").endswith(ending)), None)


def _read_code(options: argparse.Namespace) -> str:
    if options.file is None:
        return options.code or ""
    return _read_text(options.file, "code").removeprefix("\ufeff")


def _read_context(options: argparse.Namespace) -> Object:
    context: Object = {}
    if options.context_file is not None:
        try:
            context = json.loads(_read_text(str(options.context_file), "context"))
        except (ValueError, RecursionError) as error:
            raise CommandError(f"{options.context_file} is not valid JSON: {error}", ExitCode.USAGE) from error
        if not isinstance(context, dict):
            raise CommandError(f"{options.context_file} must have a JSON object", ExitCode.USAGE)
    return context | dict(options.context)


def _read_text(name: str, what: str) -> str:
    try:
        if name == "-":
            content = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise CommandError(f"{name} can't be read: {error.strerror}", ExitCode.USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 at byte {error.start}", ExitCode.USAGE) from error
    if len(content) > _MAX_BYTES:
        raise CommandError(f"{name}: the {what} has more than {_MAX_BYTES} bytes", ExitCode.USAGE)
    return text
