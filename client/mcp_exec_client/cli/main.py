"""Entry points: the `mcp-exec` command, and the same commands as a plugin of kubectl."""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import NoReturn

from mcp_exec_client.cli import completion, profiles, version
from mcp_exec_client.cli.commands import (
    agent,
    doctor,
    executions,
    generate,
    importing,
    mcp,
    records,
    rollouts,
    run,
    sessions,
    skills,
    tools,
    usage,
    workspace,
)
from mcp_exec_client.cli.completion import COMPLETE, FILES, find_candidates, find_command, find_options, walk
from mcp_exec_client.cli.connection import KUBECTL
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.keys import command as keys
from mcp_exec_client.cli.options import add_group
from mcp_exec_client.cli.output import print_note

PROGRAM = "mcp-exec"
_EXTRAS = {
    "httpx": "client",
    "aiohttp": "kubectl",
    "kubernetes": "kubectl",
    "anthropic": "agent",
    "openai": "openai",
    "pyarrow": "parquet",
    "mcp": "generate",
    "httpx2": "generate",
}
"""The extra that brings a package; others are in `cli`."""
_MAX_WORD = 60
_DESCRIPTION = "Runs code in sandboxes, and shows what it did."


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the choice that may be meant, which argparse does from Python 3.14 on."""

    def error(self, message: str) -> NoReturn:
        given, _, choices = message.partition(" (choose from ")
        word = given.partition("invalid choice: ")[2].strip("'")
        super().error(message + _suggest(word, re.findall(r"[\w.-]+", choices)))


def build_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """Build the parser of all commands and options."""
    parser: argparse.ArgumentParser = _Parser(prog=program, description=_DESCRIPTION, allow_abbrev=False)
    parser.set_defaults(program=program)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for module in (
        run,
        executions,
        sessions,
        workspace,
        skills,
        tools,
        usage,
        records,
        rollouts,
        keys,
        doctor,
        version,
    ):
        module.add_to(commands)
    if program == PROGRAM:
        servers = add_group(commands, "servers", summary="wrappers of MCP servers, and a server of own tools")
        for module in (generate, importing):
            module.add_to(servers)
        for module in (agent, mcp, profiles, completion):
            module.add_to(commands)
    else:
        for command in walk(parser):  # their examples have the program's name
            command.description = (command.description or "").replace(f"{PROGRAM} ", f"{program} ")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exits with a code of ExitCode, and with one line on stderr if it fails."""
    _run(PROGRAM, sys.argv[1:] if arguments is None else arguments)


def kubectl_main(arguments: Sequence[str] | None = None) -> None:
    """Run a command as a plugin of kubectl, which finds it as the program `kubectl-mcp_exec`."""
    _run(KUBECTL, sys.argv[1:] if arguments is None else arguments)


def kubectl_complete_main(arguments: Sequence[str] | None = None) -> None:
    """Complete a command line for kubectl 1.26 or later, which calls `kubectl_complete-mcp_exec`."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    found = _find_candidates(build_parser(KUBECTL), words)
    is_file = (FILES, "") in found
    lines = [f"{word}\t{text}" for word, text in found if word != FILES]
    # the directive of kubectl's library: 4 means no names of files, 0 means names of files
    sys.stdout.write("\n".join([*lines, ":0" if is_file else ":4"]) + "\n")


def _run(program: str, arguments: Sequence[str]) -> None:
    parser = build_parser(program)
    if arguments and arguments[0] == COMPLETE:
        lines = [f"{word}\t{text}\n" for word, text in _find_candidates(parser, arguments[1:])]
        sys.stdout.write("".join(lines))
        return
    options = _parse(parser, arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    import logging

    from mcp_exec_client.network import writing_lines

    logging.getLogger().addHandler(logging.NullHandler())  # warnings of libraries are no messages of the command
    try:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a command has an end of its own
        with writing_lines(lambda text: print_note(f"{program}: warning: {text}")):
            options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        sys.stdout.flush()
        print_note(f"{program}: {error}")
        sys.exit(error.code)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mcp_exec"):
            raise
        package = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(package, "cli")
        print_note(f"{program}: the Python package {package} is missing: install the extra `{extra}` of mcp-exec")
        sys.exit(ExitCode.FAILED)
    except KeyboardInterrupt:
        sys.exit(ExitCode.CANCELLED)
    except BrokenPipeError:
        # what is still buffered would fail again when the interpreter exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.BROKEN_PIPE)


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = [text for action in find_options(find_command(parser, arguments)) for text in action.option_strings]
        hint = _suggest(unknown[0].partition("=")[0], known)
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


def _suggest(word: str, known: Collection[str]) -> str:
    close = get_close_matches(word[:_MAX_WORD], known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _find_candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[tuple[str, str]]:
    try:
        return find_candidates(parser, words)
    except (CommandError, SystemExit):
        return []
