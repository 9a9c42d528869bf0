"""Models that work by code: one task with `agent`, a conversation with `chat`, and the options of both."""

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_exec_api.constants import MAX_TIMEOUT_SECONDS
from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS
from mcp_exec_client.cli.connection import resolve_gateway
from mcp_exec_client.cli.execution_options import add_named, add_option
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.models.access import add_model_options, open_provider, read_answer_tokens
from mcp_exec_client.cli.models.files import apply_files
from mcp_exec_client.cli.options import Subcommands, add_command, add_gateway_options, add_number, run_interruptible
from mcp_exec_client.cli.output import TextWriter, escape_line, print_note

if TYPE_CHECKING:
    from decimal import Decimal

    from mcp_exec_client.agent import Agent, AgentEvent, ApprovalAnswer, ApprovalQuestion, OnApproval
    from mcp_exec_client.client import AsyncClient


_MAX_TOOLS: Final = 1000
_MAX_SERVERS: Final = 10


def add_agent_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a conversation."""
    used = "pattern of tools that the model may use, such as `github.*`"
    add_option(command, replace(EXECUTION_OPTIONS["tools"], help=used))
    add_gateway_options(command)
    command.add_argument("-n", "--namespace", metavar="NAME", help="namespace of executions; default: the key's own")
    command.add_argument(
        "--mode", choices=("code", "direct", "hybrid"), default="code", help="how tools are used; default: code"
    )
    add_model_options(command)
    add_named(command, "pool", "user", "conversation")
    hidden = "variable of the code, whose value the model does not see: KEY=TEXT, or KEY:=JSON"
    add_option(command, replace(EXECUTION_OPTIONS["context"], help=hidden))
    command.add_argument(
        "--report", action="store_true", help="report the tokens of each task to the gateway, which needs records"
    )
    command.add_argument("--rollout", metavar="NAME", help="rollout that assigns the mode")
    command.add_argument("--unit", metavar="ID", help="unit of the rollout; default: the user")
    _add_limits(command)


def _add_limits(command: argparse.ArgumentParser) -> None:
    add_number(
        command,
        "--timeout",
        1,
        MAX_TIMEOUT_SECONDS,
        metavar="SECONDS",
        default=30,
        help="time limit of one block of code",
    )
    add_number(command, "--max-turns", 1, 100, default=12, help="most messages of the model for a task")
    add_number(command, "--max-tokens", 1, 100_000_000, default=1_000_000, help="most tokens of a task")
    add_number(command, "--max-seconds", 1, 86_400, metavar="SECONDS", default=900, help="longest time of a task")
    command.add_argument("--max-money", metavar="AMOUNT", type=_amount, help="most money of a task; needs --price")
    command.add_argument(
        "--price",
        metavar="INPUT,OUTPUT",
        type=_pair_of_amounts,
        help="price of a million tokens; cached input is taken as 0.1 of it if read, and 1.25 if written",
    )


@asynccontextmanager
async def open_agent(options: argparse.Namespace, on_approval: "OnApproval | None") -> AsyncIterator["Agent"]:
    """Yield the conversation that the options describe. Raises CommandError."""
    from mcp_exec_client.agent import Agent, AgentLimits
    from mcp_exec_client.client import AsyncClient

    connection = resolve_gateway(options, namespace=options.namespace)
    url = connection.require_gateway(options.command)
    if options.rollout and not (options.unit or options.user):
        raise CommandError("--rollout needs --unit or --user", ExitCode.USAGE)
    if options.max_money and not options.price:
        raise CommandError("--max-money needs --price", ExitCode.USAGE)
    # the scripted model reads no files: one without a key may be named by the same command
    if not options.offline:
        apply_files(os.environ, env_file=options.env_file, config=options.config)
    limits = AgentLimits(
        turns=options.max_turns,
        tokens=options.max_tokens,
        money=options.max_money,
        seconds=options.max_seconds,
        answer_tokens=read_answer_tokens(options),
    )
    names = ("user", "conversation")
    given: dict[str, Any] = {name: value for name in names if (value := getattr(options, name))}
    async with (
        AsyncClient(url, api_key=connection.api_key, namespace=connection.namespace) as client,
        AsyncExitStack() as stack,
    ):
        provider = await open_provider(options, stack)
        await check_allowed_tools(client, options)
        yield Agent(
            client,
            provider,
            mode=options.mode,
            limits=limits,
            context=dict(options.context),
            on_approval=on_approval,
            rollout=options.rollout,
            unit=options.unit,
            report=options.report,
            prices=_build_prices(options),
            timeout_seconds=options.timeout,
            tools=options.tools,
            pool=options.pool,
            **given,
        )


def _build_prices(options: argparse.Namespace) -> dict[str, Any]:
    from decimal import Decimal

    from mcp_exec_client.agent import TokenPrice

    if options.price is None:
        return {}
    price, output = options.price
    return {
        "*": TokenPrice(
            input=price,
            output=output,
            # usual prices of cached tokens
            cache_read=price * Decimal("0.1"),
            cache_write=price * Decimal("1.25"),
        )
    }


def _amount(text: str) -> "Decimal":
    from decimal import Decimal, InvalidOperation

    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not an amount such as 0.50") from None
    if not (amount.is_finite() and 0 < amount < 1_000_000):
        raise argparse.ArgumentTypeError("must be more than 0 and less than 1000000")
    return amount


def _pair_of_amounts(text: str) -> "tuple[Decimal, Decimal]":
    first, separator, second = text.partition(",")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be INPUT,OUTPUT, for example 3,15")
    return _amount(first), _amount(second)


def _task(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("TASK is empty: say what the model has to do")
    return text


async def check_allowed_tools(client: "AsyncClient", options: argparse.Namespace) -> None:
    """Say how to allow tools if there are none. Raises CommandError for a scripted model, which needs one."""
    from mcp_exec_client.errors import McpExecError
    from mcp_exec_tools.patterns import ToolPatterns

    try:
        found = await client.search_tools("", detail_level="name_only", limit=_MAX_TOOLS)
    except McpExecError:
        return  # the task itself reports it, if it needs tools
    allowed = ToolPatterns(options.tools)
    if any(allowed.match(tool.server, tool.name) for tool in found):
        return
    text = describe_no_tools(options.tools, {tool.server for tool in found}, task=getattr(options, "task", ""))
    if options.offline:
        raise CommandError(text, ExitCode.REFUSED if options.tools else ExitCode.USAGE)
    print_note(text)


def describe_no_tools(patterns: Collection[str], servers: Collection[str], *, task: str = "") -> str:
    """Return why a model has no tool, and which option allows some."""
    problem = f"no tool matches --tool {' '.join(patterns)}" if patterns else "no tool is allowed without --tool"
    if not servers:
        return f"{problem}: this key may use no tool"
    named = sorted(servers, key=lambda server: (server.lower() not in task.lower(), server))
    more = f" and {len(named) - _MAX_SERVERS} more" if len(named) > _MAX_SERVERS else ""
    return f"{problem}; --tool '{named[0]}.*' allows tools; servers: {', '.join(named[:_MAX_SERVERS])}{more}"


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
_LINE: Final = 500
"""Most characters of a step that has an address and an error."""


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    agent = add_command(commands, "agent", summary="give a model a task that it does by code", description=_AGENT)
    agent.add_argument("task", metavar="TASK", type=_task, help="what the model does")
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
    import asyncio

    async with open_agent(options, _find_on_approval()) as agent:
        try:
            return (await agent.run(options.task, on_event=_print_event)).text
        finally:
            if options.price is not None:
                print_note(_describe_usage(agent))
            if options.trace is not None and agent.trace is not None:
                text = json.dumps(agent.trace.to_json(), indent=1, ensure_ascii=False)
                await asyncio.to_thread(options.trace.write_text, text + "\n", "utf-8", "backslashreplace")


async def _chat(options: argparse.Namespace) -> None:
    import asyncio

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
    from mcp_exec_client.agent import AgentStep, RunEvent, TextDropped, Waiting
    from mcp_exec_client.events import TextEvent

    if isinstance(event, AgentStep):
        first, *more = event.text.strip().splitlines() or [""]
        text = first[: _LINE if event.kind == "model" else _WIDTH] + (f" ... ({len(more)} more lines)" if more else "")
        took = f"{event.milliseconds:.0f} ms" if event.milliseconds else ""
        print_note(f"{'!' if event.failed else ' '} {event.kind:<9} {took:>8}  {text}")
    elif isinstance(event, RunEvent) and isinstance(event.event, TextEvent):
        for line in event.event.text.splitlines():
            print_note(f"  | {line}")
    elif isinstance(event, TextDropped):
        print_note(f"! {event.reason}; the request is sent again")
    elif isinstance(event, Waiting):
        print_note(f"  {event.reason}")


def _find_on_approval() -> "OnApproval | None":
    """Return the question to the person at the terminal, or None if there is none: then somebody else decides."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


async def _ask(question: "ApprovalQuestion") -> "ApprovalAnswer":
    import asyncio

    note = "" if question.arguments_complete else " (not all arguments)"
    sys.stderr.write(f"  approve {escape_line(question.tool)} {escape_line(question.arguments)}{note}? [y/N] ")
    sys.stderr.flush()
    answer = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip().lower() in ("y", "yes")
