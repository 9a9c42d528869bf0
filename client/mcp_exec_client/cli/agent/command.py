"""`mcp-exec agent`: gives a model a task, which it does with the tools of the gateway.

The answer is written to standard output, each step to standard error. The SDK reads the model's key and address from
$ANTHROPIC_API_KEY and $ANTHROPIC_BASE_URL.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from mcp_exec_client.cli.agent.options import add_agent_options, open_agent
from mcp_exec_client.cli.agent.printing import find_on_approval, print_event
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import CommandError, Subcommands, add_command
from mcp_exec_client.cli.terminal import TextWriter


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "agent", summary="give a model a task that it does by code", description=__doc__)
    command.add_argument("task", metavar="TASK", help="what the model does")
    add_agent_options(command)
    command.add_argument(
        "--trace", metavar="FILE", type=Path, help="write all steps and their cost to this file, as JSON"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError if there is no answer."""
    # imported here: the other commands need none of it
    from mcp_exec_client.agent.errors import AgentError
    from mcp_exec_client.errors import McpExecError

    if options.trace is not None and not options.trace.parent.is_dir():
        raise CommandError(f"--trace: the folder {options.trace.parent} does not exist")
    try:
        answer = run_interruptible(_run_agent(options))
    except (AgentError, McpExecError) as error:
        raise CommandError(str(error)) from error
    TextWriter(sys.stdout).write(answer + "\n")


async def _run_agent(options: argparse.Namespace) -> str:
    async with open_agent(options, find_on_approval()) as agent:
        try:
            return (await agent.run(options.task, on_event=print_event)).text
        finally:
            if options.trace is not None and agent.trace is not None:
                text = json.dumps(agent.trace.to_json(), indent=1, ensure_ascii=False)
                await asyncio.to_thread(options.trace.write_text, text + "\n")
