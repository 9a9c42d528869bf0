"""What all commands share: their error and the options that several of them have."""

import argparse
import os
from collections.abc import Callable
from typing import TypeAlias

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
"""Where commands are added to."""


class CommandError(Exception):
    """Failure of a command. The text is a complete message for the user."""


def add_command(commands: Subcommands, name: str, *, summary: str, description: str | None) -> argparse.ArgumentParser:
    """Add a command without options. `description` is shown as it is, with its line breaks."""
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_gateway_options(command: argparse.ArgumentParser, *, note: str = "") -> None:
    """Add --gateway and --api-key to a command. `note` begins their help texts."""
    command.add_argument("--gateway", metavar="URL", help=f"{note}address of the gateway; default: $MCP_EXEC_GATEWAY")
    command.add_argument("--api-key", metavar="KEY", help=f"{note}key of the gateway; default: $MCP_EXEC_API_KEY")


def read_gateway(options: argparse.Namespace) -> str | None:
    """Return the gateway's address from the options, or else from the environment."""
    return options.gateway or os.environ.get("MCP_EXEC_GATEWAY")


def read_api_key(options: argparse.Namespace) -> str | None:
    """Return the API key from the options, or else from the environment."""
    return options.api_key or os.environ.get("MCP_EXEC_API_KEY")


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
