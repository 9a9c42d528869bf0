"""`mcp-exec run`: gives a model a task, which it does by code in sandboxes.

The answer goes to standard output, each step to standard error as it is done. The model's key and address are the
SDK's: $ANTHROPIC_API_KEY and $ANTHROPIC_BASE_URL.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_exec_client.gateway import Gateway, Unreachable
from mcp_exec_client.problems import Problem

if TYPE_CHECKING:
    from mcp_exec_client.agent import Step, Trace

_MODEL: Final = "claude-sonnet-5-5"
_WIDTH: Final = 100


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command and its options."""
    command = commands.add_parser(
        "run",
        help="give a model a task that it does by code",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("task", metavar="TASK")
    command.add_argument(
        "--tool", metavar="PATTERN", action="append", default=[], help="what code may call: `github.*`"
    )
    command.add_argument("--gateway", metavar="URL", help="default: $MCP_EXEC_GATEWAY")
    command.add_argument("--api-key", metavar="KEY", help="the gateway's; default: $MCP_EXEC_API_KEY")
    command.add_argument("--model", metavar="NAME", default=_MODEL, help=f"default: {_MODEL}")
    command.add_argument("--pool", metavar="NAME", default="default", help="default: default")
    command.add_argument(
        "--timeout", metavar="SECONDS", type=_between(1, 300), default=30, help="of a block of code; default: 30"
    )
    command.add_argument(
        "--max-turns", metavar="N", type=_between(1, 100), default=12, help="answers of the model; default: 12"
    )
    command.add_argument(
        "--trace", metavar="FILE", type=Path, help="writes all steps and what they cost there, as JSON"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Does what the options say. Raises Problem where there is no answer."""
    # here and not above: the SDK takes a second to import, which the other commands need not wait for
    from anthropic import AnthropicError

    from mcp_exec_client.agent import AgentError, Trace

    gateway = options.gateway or os.environ.get("MCP_EXEC_GATEWAY")
    if not gateway:
        raise Problem("run needs --gateway (or $MCP_EXEC_GATEWAY)")
    if options.trace is not None and not options.trace.parent.is_dir():
        raise Problem(f"--trace: there is no folder {options.trace.parent}")
    trace = Trace(task=options.task, model=options.model)
    try:
        answer = asyncio.run(_work(options, gateway, trace))
    except (AgentError, Unreachable, AnthropicError) as error:
        raise Problem(str(error)) from error
    finally:
        if options.trace is not None:
            options.trace.write_text(json.dumps(asdict(trace), indent=1, ensure_ascii=False) + "\n")
    sys.stdout.write(answer + "\n")


async def _work(options: argparse.Namespace, gateway: str, trace: "Trace") -> str:
    from anthropic import AsyncAnthropic

    from mcp_exec_client.agent import Agent

    key = options.api_key or os.environ.get("MCP_EXEC_API_KEY")
    async with Gateway.connect(url=gateway, key=key) as connected, AsyncAnthropic() as model:
        if not (model.api_key or model.auth_token or model.credentials):
            raise Problem("run needs $ANTHROPIC_API_KEY, the key of the model's API")
        agent = Agent(
            model=model,
            gateway=connected,
            model_name=options.model,
            tools=options.tool,
            pool=options.pool,
            timeout_seconds=options.timeout,
            max_turns=options.max_turns,
            tell=_tell,
        )
        return await agent.work(options.task, trace)


def _tell(step: "Step") -> None:
    first, *more = step.text.strip().splitlines() or [""]
    text = first[:_WIDTH] + (f" ... ({len(more)} lines more)" if more else "")
    took = f"{step.milliseconds:.0f} ms" if step.milliseconds else ""
    sys.stderr.write(f"{'!' if step.failed else ' '} {step.kind:<9} {took:>8}  {text}\n")


def _between(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"between {least} and {most}")
        return value

    return number
