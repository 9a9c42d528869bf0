"""`mcp-exec agent`: gives a model a task, which it does by code in sandboxes.

The answer is written to standard output, each step to standard error. The SDK reads the model's key and address from
$ANTHROPIC_API_KEY and $ANTHROPIC_BASE_URL.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.connection import Connection, resolve_gateway
from mcp_exec_client.cli.options import CommandError, Subcommands, add_command, add_gateway_options, number_between

if TYPE_CHECKING:
    from mcp_exec_client.agent import AgentStep, RunTrace

_MODEL: Final = "claude-sonnet-5-5"
_WIDTH: Final = 100


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "agent", summary="give a model a task that it does by code", description=__doc__)
    command.add_argument("task", metavar="TASK", help="what the model does")
    command.add_argument(
        "--tool",
        metavar="PATTERN",
        action="append",
        default=[],
        help="pattern of tools that the code may call, such as `github.*`; may be repeated",
    )
    add_gateway_options(command)
    command.add_argument("--model", metavar="NAME", default=_MODEL, help=f"default: {_MODEL}")
    command.add_argument("--pool", metavar="NAME", default="default", help="default: default")
    command.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=number_between(1, 300),
        default=30,
        help="time limit of one block of code; default: 30",
    )
    command.add_argument(
        "--max-turns",
        metavar="N",
        type=number_between(1, 100),
        default=12,
        help="most messages of the model; default: 12",
    )
    command.add_argument(
        "--trace", metavar="FILE", type=Path, help="write all steps and their cost to this file, as JSON"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError if there is no answer."""
    # imported here: the SDK takes a second to import, which the other commands do not need
    from anthropic import AnthropicError

    from mcp_exec_client.agent import AgentError, RunTrace
    from mcp_exec_client.errors import McpExecError

    connection = resolve_gateway(options)
    connection.require_gateway("agent")
    if options.trace is not None and not options.trace.parent.is_dir():
        raise CommandError(f"--trace: the folder {options.trace.parent} does not exist")
    trace = RunTrace(task=options.task, model=options.model)
    try:
        answer = asyncio.run(_run_agent(options, connection, trace))
    except (AgentError, McpExecError, AnthropicError) as error:
        raise CommandError(str(error)) from error
    finally:
        if options.trace is not None:
            options.trace.write_text(json.dumps(asdict(trace), indent=1, ensure_ascii=False) + "\n")
    sys.stdout.write(answer + "\n")


async def _run_agent(options: argparse.Namespace, connection: Connection, trace: "RunTrace") -> str:
    from anthropic import AsyncAnthropic

    from mcp_exec_client.agent import Agent
    from mcp_exec_client.client import AsyncClient

    async with (
        AsyncClient(
            connection.require_gateway("agent"), api_key=connection.api_key, namespace=connection.namespace
        ) as client,
        AsyncAnthropic() as model,
    ):
        if not (model.api_key or model.auth_token or model.credentials):
            raise CommandError("agent needs $ANTHROPIC_API_KEY, the key of the model's API")
        agent = Agent(
            model=model,
            gateway=client,
            model_name=options.model,
            tools=options.tool,
            pool=options.pool,
            timeout_seconds=options.timeout,
            max_turns=options.max_turns,
            on_step=_print_step,
        )
        return await agent.run(options.task, trace)


def _print_step(step: "AgentStep") -> None:
    first, *more = step.text.strip().splitlines() or [""]
    text = first[:_WIDTH] + (f" ... ({len(more)} more lines)" if more else "")
    took = f"{step.milliseconds:.0f} ms" if step.milliseconds else ""
    sys.stderr.write(f"{'!' if step.failed else ' '} {step.kind:<9} {took:>8}  {text}\n")
