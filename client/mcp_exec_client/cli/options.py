"""What all commands share: their error, and the options that several of them have."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from mcp_exec_client.cli.exit_codes import ExitCode

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
"""Where commands are added to."""
MAX_WAIT_SECONDS: Final = 24 * 3600


class CommandError(Exception):
    """Failure of a command. The text is a complete message for the user."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def add_command(commands: Subcommands, name: str, *, summary: str, description: str | None) -> argparse.ArgumentParser:
    """Add a command without options. `description` is shown as it is, with its line breaks."""
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_group(commands: Subcommands, name: str, *, summary: str) -> Subcommands:
    """Add a command that consists of commands, and return where these are added."""
    group = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    return group.add_subparsers(required=True, metavar="COMMAND")


def add_gateway_options(command: argparse.ArgumentParser, *, note: str = "") -> None:
    """Add the options of a gateway to a command. `note` begins their help texts."""
    command.add_argument(
        "--gateway", metavar="URL", help=f"{note}address of the gateway; default: $MCP_EXEC_GATEWAY, then the profile's"
    )
    command.add_argument(
        "--api-key", metavar="KEY", help=f"{note}key of the gateway; default: $MCP_EXEC_API_KEY, then the profile's"
    )
    profile = command.add_argument(
        "--profile",
        metavar="NAME",
        help=f"{note}profile with gateway and key; default: $MCP_EXEC_PROFILE, then the current one",
    )
    set_completer(profile, "profile")


def add_kubeconfig_options(command: argparse.ArgumentParser) -> None:
    """Add the options of an API server to a command."""
    kubeconfig = command.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="use the API server of this kubeconfig file, not a gateway; only the plugin of kubectl has a default: "
        "$KUBECONFIG, then ~/.kube/config",
    )
    set_completer(kubeconfig, "file")
    command.add_argument("--kube-context", metavar="NAME", help="context of the kubeconfig; default: its current one")


def add_connection_options(command: argparse.ArgumentParser) -> None:
    """Add the options that choose a gateway or an API server, and a namespace."""
    add_gateway_options(command)
    add_kubeconfig_options(command)
    command.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="namespace of executions; default: $MCP_EXEC_NAMESPACE, then that of the profile or context, then the "
        "key's own",
    )


def add_output_option(command: argparse.ArgumentParser, *formats: str) -> None:
    """Add -o with these formats, of which the first is the default."""
    command.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=formats,
        default=formats[0],
        help=f"one of {', '.join(formats)}; default: {formats[0]}",
    )


def set_completer(action: argparse.Action, kind: str) -> None:
    """Say of what kind the values of an option or argument are, for completion.

    Kinds are `execution`, `session`, `profile` and `file`.
    """
    action.completer = kind  # type: ignore[attr-defined]


def number_between(lowest: int, highest: int) -> Callable[[str], int]:
    """Return a parser of options that are whole numbers within these bounds."""

    def number(text: str) -> int:
        value = int(text)
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"must be between {lowest} and {highest}")
        return value

    return number


def seconds_between(lowest: float, highest: float) -> Callable[[str], float]:
    """Return a parser of options that are seconds within these bounds."""

    def seconds(text: str) -> float:
        value = float(text)
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"must be between {lowest:g} and {highest:g}")
        return value

    return seconds


def pair(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} must be KEY=VALUE")
    return name, value


Object: TypeAlias = dict[str, Any]
