"""Models that work by code: one task with `agent`, a conversation with `chat`."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.agent_options import add_agent_options, open_agent
from mcp_exec_client.cli.options import CommandError, Subcommands, add_command, run_interruptible
from mcp_exec_client.cli.output import TextWriter, escape_line, print_note

if TYPE_CHECKING:
    from mcp_exec_client.agent import Agent, AgentEvent, ApprovalAnswer, ApprovalQuestion, OnApproval

_AGENT: Final = """`mcp-exec agent`: gives a model a task, which it does with the tools of the gateway.

The answer is written to standard output, each step to standard error. The SDK reads the model's key and address from
$ANTHROPIC_API_KEY and $ANTHROPIC_BASE_URL.
"""
_CHAT: Final = """`mcp-exec chat`: a conversation with a model that uses the tools of the gateway.

Each line of standard input is a task; the model remembers the earlier ones. Its text goes to standard output as it
arrives, each step to standard error. `/usage` shows the tokens so far, `/reset` begins again, `/exit` or the end of
input ends.
"""
_MAX_LINE: Final = 100_000
_WIDTH: Final = 100


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    agent = add_command(commands, "agent", summary="give a model a task that it does by code", description=_AGENT)
    agent.add_argument("task", metavar="TASK", help="what the model does")
    add_agent_options(agent)
    agent.add_argument(
        "--trace", metavar="FILE", type=Path, help="write all steps and their cost to this file, as JSON"
    )
    agent.set_defaults(run=_run)
    chat = add_command(commands, "chat", summary="talk to a model that works by code", description=_CHAT, run=_chat)
    add_agent_options(chat)


def _run(options: argparse.Namespace) -> None:
    # imported here: the other commands need none of it
    from mcp_exec_client.agent.outcomes import AgentError
    from mcp_exec_client.errors import McpExecError

    if options.trace is not None and not options.trace.parent.is_dir():
        raise CommandError(f"--trace: the folder {options.trace.parent} does not exist")
    try:
        answer = run_interruptible(_run_agent(options))
    except (AgentError, McpExecError) as error:
        raise CommandError(str(error)) from error
    TextWriter(sys.stdout).write(answer + "\n")


async def _run_agent(options: argparse.Namespace) -> str:
    async with open_agent(options, _find_on_approval()) as agent:
        try:
            return (await agent.run(options.task, on_event=_print_event)).text
        finally:
            if options.trace is not None and agent.trace is not None:
                text = json.dumps(agent.trace.to_json(), indent=1, ensure_ascii=False)
                await asyncio.to_thread(options.trace.write_text, text + "\n")


async def _chat(options: argparse.Namespace) -> None:
    writer = TextWriter(sys.stdout)
    async with open_agent(options, _find_on_approval()) as agent:
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
            await _print_event(event)

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


async def _print_event(event: "AgentEvent") -> None:
    """Print a step, or a line of output that the code writes."""
    from mcp_exec_client.agent import AgentStep, RunEvent, TextDropped
    from mcp_exec_client.events import TextEvent

    if isinstance(event, AgentStep):
        first, *more = event.text.strip().splitlines() or [""]
        text = first[:_WIDTH] + (f" ... ({len(more)} more lines)" if more else "")
        took = f"{event.milliseconds:.0f} ms" if event.milliseconds else ""
        print_note(f"{'!' if event.failed else ' '} {event.kind:<9} {took:>8}  {text}")
    elif isinstance(event, RunEvent) and isinstance(event.event, TextEvent):
        for line in event.event.text.splitlines():
            print_note(f"  | {line}")
    elif isinstance(event, TextDropped):
        print_note(f"! {event.reason}; the request is sent again")


def _find_on_approval() -> "OnApproval | None":
    """Return the question to the person at the terminal, or None if there is none: then somebody else decides."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


async def _ask(question: "ApprovalQuestion") -> "ApprovalAnswer":
    note = "" if question.arguments_complete else " (not all arguments)"
    sys.stderr.write(f"  approve {escape_line(question.tool)} {escape_line(question.arguments)}{note}? [y/N] ")
    sys.stderr.flush()
    answer = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip().lower() in ("y", "yes")
