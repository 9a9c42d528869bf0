"""Prints a script that completes commands, options and names of executions in a shell.

examples:
  eval "$(mcp-exec completion bash)"                             # in ~/.bashrc
  eval "$(mcp-exec completion zsh)"                              # in ~/.zshrc, after compinit
  mcp-exec completion fish > ~/.config/fish/completions/mcp-exec.fish
"""

import argparse
import sys

from mcp_exec_client.cli.completion import SCRIPTS
from mcp_exec_client.cli.options import Subcommands, add_command


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "completion", summary="print a shell's completion script", description=__doc__)
    command.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=f"one of {', '.join(SCRIPTS)}")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    sys.stdout.write(SCRIPTS[options.shell])
