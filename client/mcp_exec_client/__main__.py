"""The `mcp-exec` command."""

import argparse
import sys
from collections.abc import Sequence

from mcp_exec_client import doctor, generate, run
from mcp_exec_client.problems import Problem


def parser() -> argparse.ArgumentParser:
    """All of the command's options."""
    found = argparse.ArgumentParser(prog="mcp-exec", description=__doc__, allow_abbrev=False)
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    servers = commands.add_parser("servers", help="typed wrappers of MCP servers", allow_abbrev=False)
    generate.add_to(servers.add_subparsers(required=True, metavar="COMMAND"))
    doctor.add_to(commands)
    run.add_to(commands)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command. What goes wrong is said in a line on stderr, and ends it with 1; wrong options with 2."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except Problem as problem:
        sys.exit(f"mcp-exec: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
