"""Page of the site with all commands, their options and exit codes, from the parser."""

import argparse
from typing import Final

from mcp_exec_client.cli.completion import find_arguments, find_commands, find_options, walk
from mcp_exec_client.cli.connection import KUBECTL
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.main import PROGRAM, build_parser

_CONNECTION: Final = (
    "--gateway",
    "--api-key",
    "--profile",
    "--kubeconfig",
    "--kube-context",
    "--namespace",
)
_HEAD: Final = """# Reference of the command line

[command-line.md](../services/command-line.md) explains the commands by examples. `{program} COMMAND --help` shows the
same as this page. The plugin of kubectl, `{kubectl}`, has the commands
{plugin}.

## Exit codes

| code | meaning |
|---|---|
{codes}

## Options of a connection

Commands that use a gateway or an API server have these options, and no others are read. The key of a profile is only
sent to the gateway of that profile.

| option | meaning |
|---|---|
{connection}
"""


def build_page() -> str:
    """Return the page."""
    parser = build_parser()
    commands = [command for command in walk(parser) if not find_commands(command)]
    connection = {_long_name(action): action for action in find_options(find_commands(parser)["get"])}
    in_plugin = ", ".join(f"`{name}`" for name in find_commands(build_parser(KUBECTL)))
    head = _HEAD.format(
        program=PROGRAM,
        kubectl=KUBECTL,
        plugin=in_plugin,
        codes="\n".join(f"| {code.value} | {code.meaning} |" for code in ExitCode),
        connection="\n".join(_describe(connection[name]) for name in _CONNECTION),
    )
    return head + "".join(_build_section(command) for command in commands)


def _build_section(command: argparse.ArgumentParser) -> str:
    options = [action for action in find_options(command) if _long_name(action) not in ("--help", *_CONNECTION)]
    own = [*find_arguments(command), *options]
    is_connected = any(_long_name(action) == "--gateway" for action in find_options(command))
    usage = " ".join(
        [command.prog, *(["[OPTIONS]"] if find_options(command) else []), *map(_usage, find_arguments(command))]
    )
    lines = [f"\n## {command.prog}\n", "```text", usage, "", (command.description or "").strip(), "```\n"]
    if own:
        lines += ["| argument or option | meaning |", "|---|---|", *map(_describe, own), ""]
    if is_connected:
        lines += ["It has the [options of a connection](#options-of-a-connection).", ""]
    return "\n".join(lines)


def _usage(action: argparse.Action) -> str:
    name = str(action.metavar)
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}.get(str(action.nargs), name)


def _describe(action: argparse.Action) -> str:
    value = f" {action.metavar}" if action.option_strings and action.metavar else ""
    names = ", ".join(f"`{name}{value}`" for name in action.option_strings) or f"`{_usage(action)}`"
    return f"| {names} | {(action.help or '').replace('|', chr(92) + '|')} |"


def _long_name(action: argparse.Action) -> str:
    return next((name for name in action.option_strings if name.startswith("--")), "")
