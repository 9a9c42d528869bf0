"""The `mcp-exec` command."""

import argparse
import sys
from collections.abc import Sequence

from mcp_exec_client import run
from mcp_exec_client.cli import CommandError
from mcp_exec_client.doctor import command as doctor
from mcp_exec_client.generate import command as generate


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands and options."""
    parser = argparse.ArgumentParser(prog="mcp-exec", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    servers = commands.add_parser("servers", help="typed wrappers of MCP servers", allow_abbrev=False)
    generate.add_to(servers.add_subparsers(required=True, metavar="COMMAND"))
    doctor.add_to(commands)
    run.add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exits with 1 and one line on stderr if it fails, with 2 if an option is wrong."""
    options = build_parser().parse_args(arguments)
    try:
        options.run(options)
    except CommandError as error:
        sys.exit(f"mcp-exec: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
