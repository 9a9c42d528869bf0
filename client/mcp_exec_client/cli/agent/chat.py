"""`mcp-exec chat`: a conversation with a model that uses the tools of the gateway.

Each line of standard input is a task; the model remembers the earlier ones. Its text goes to standard output as it
arrives, each step to standard error. `/usage` shows the tokens so far, `/reset` begins again, `/exit` or the end of
input ends.
"""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.agent.options import add_agent_options, open_agent
from mcp_exec_client.cli.agent.printing import find_on_approval, print_event
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import Subcommands, add_command
from mcp_exec_client.cli.terminal import TextWriter, print_note

if TYPE_CHECKING:
    from mcp_exec_client.agent import Agent, AgentEvent

_MAX_LINE: Final = 100_000


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "chat", summary="talk to a model that works by code", description=__doc__)
    add_agent_options(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command until standard input ends. Raises CommandError."""
    run_interruptible(_chat(options))


async def _chat(options: argparse.Namespace) -> None:
    writer = TextWriter(sys.stdout)
    async with open_agent(options, find_on_approval()) as agent:
        while True:
            if sys.stdin.isatty():
                sys.stderr.write("> ")
                sys.stderr.flush()
            line = await asyncio.to_thread(sys.stdin.readline, _MAX_LINE)
            task = line.strip()
            if not line or task == "/exit":
                return
            if task == "/usage":
                print_note(_describe_usage(agent))
            elif task == "/reset":
                agent.history.clear()
            elif task:
                await _answer(agent, task, writer)


async def _answer(agent: "Agent", task: str, writer: TextWriter) -> None:
    """Do a task. One that fails is reported, and the conversation continues."""
    from mcp_exec_client.agent import AgentError, AgentStep, TextDelta
    from mcp_exec_client.errors import McpExecError

    async def show(event: "AgentEvent") -> None:
        if isinstance(event, TextDelta):
            writer.write(event.text)
            return
        writer.end_line()
        if not (isinstance(event, AgentStep) and event.kind == "answer"):
            await print_event(event)

    try:
        await agent.run(task, on_event=show)
    except (AgentError, McpExecError) as error:
        writer.end_line()
        print_note(f"! {error}")


def _describe_usage(agent: "Agent") -> str:
    usage, tokens = agent.usage, agent.usage.tokens
    kind = "" if tokens.counted == "provider" else ", estimated"
    cost = "" if usage.cost is None else f"; cost {usage.cost:f}"
    return (
        f"{usage.tasks} tasks, {usage.turns} turns; tokens{kind}: {tokens.input} in, {tokens.output} out, "
        f"{tokens.cache_read} read from the cache, {tokens.cache_write} written to it{cost}"
    )
