"""The tasks of `bench/tokens.py` with a real model, by direct calls and by code. It costs money.

It needs the gateway of a cluster with the servers of the tasks, which `make live` brings up, and the key of a model:

    make live
    python bench/live.py --provider anthropic --model NAME --repeat 3 --json live.json --write

The model is chosen as `mcp-exec agent` does, without one that stands in for it: its tokens would be counted as those
of the first. The direct arm is offered all tools of the servers. A task succeeds if its answer, or what it left on the
servers, is right; `bench/judgements.py` has what that means.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import token_report
import tokens
from harness import write_json
from judgements import JUDGEMENTS, Judgement
from stand_ins import make_readings
from token_costs import INPUT, OUTPUT, READ, WRITE
from transcripts import ARMS, DEMO, ROOT, Arm, Transcript, load_transcripts

from mcp_exec_client import AsyncClient, CodeExecutor
from mcp_exec_client.agent import Agent, AgentError, AgentLimits, ModelProvider, TokenPrice
from mcp_exec_client.errors import McpExecError
from mcp_exec_client.model_choice import PROVIDERS, ModelChoice, ModelNotChosen

NEEDED_DEMO = tuple(name for name in DEMO if name != "calculator")
STAND_INS = ("git", "github-official", "supabase")
PROGRAMS = {
    "filesystem": ["mcp-server-filesystem", "/data"],
    "memory": ["mcp-server-memory"],
    "time": ["python3", "-m", "mcp_server_time"],
}
MEMORY_FILE = {"name": "MEMORY_FILE_PATH", "value": "/tmp/memory.jsonl"}
SERVERS = (*NEEDED_DEMO, *STAND_INS, *PROGRAMS)
FILES = {
    "/data/security.md": (ROOT / "docs" / "platform" / "security.md").read_text,
    "/data/readings.csv": make_readings,
}
LIMITS = AgentLimits(turns=20, seconds=600)
CODE_SECONDS = 120
"""Time limit of one block of code: a task waits for something."""


@dataclass(frozen=True, kw_only=True)
class LiveRun:
    """One task by one arm."""

    task: str
    arm: Arm
    succeeded: bool
    error: str
    """Why it has no answer; empty if it has one."""
    turns: int
    input: int
    """Input tokens, cached ones included."""
    cached: int
    output: int
    money: float
    """Thousandths of a dollar."""
    seconds: float


def build_servers(image: str, runtime: str | None, *, namespace: str = "agents") -> list[dict[str, Any]]:
    """Return the ToolServers of the tasks."""
    commands = {name: ["python3", "-m", f"mcp_exec_servers.{name}"] for name in NEEDED_DEMO} | PROGRAMS
    source = Path(__file__).with_name("stand_ins.py").read_text()
    commands |= {name: ["python3", "-c", source, name] for name in STAND_INS}
    return [
        {
            "apiVersion": "mcp-exec.dev/v1beta1",
            "kind": "ToolServer",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "stdio": {
                    "image": image,
                    "command": commands[name],
                    **({"runtimeClassName": runtime} if runtime else {}),
                    **({"dataSize": "64Mi"} if name in ("filesystem", "git") else {}),
                    **({"env": [MEMORY_FILE]} if name == "memory" else {}),
                },
                # nobody is there to approve what a task changes
                "policy": {"rules": [{"tools": ["*"], "action": "Allow"}]},
            },
        }
        for name in SERVERS
    ]  # fmt: skip


class LiveArms:
    """Runs tasks with a model and judges them."""

    def __init__(self, client: AsyncClient, provider: ModelProvider, price: TokenPrice) -> None:
        self._client, self._provider, self._price = client, provider, price
        self._tools = [f"{server}.*" for server in SERVERS]
        self._executor = CodeExecutor(client, tools=self._tools)

    async def prepare(self) -> None:
        """Write the files that the tasks read. Raises RuntimeError if a server is missing."""
        code = "from servers.filesystem import write_file\n\nawait write_file(path=path, content=content)"
        for path, read in FILES.items():
            await self._execute(code, {"path": path, "content": read()})

    async def run(self, task: Transcript, arm: Arm) -> LiveRun:
        """Do a task by one arm, in a conversation of its own."""
        judgement = JUDGEMENTS[task.task]
        before = await self._execute(judgement.before, {}) if judgement.before else None
        agent = Agent(
            self._client,
            self._provider,
            mode=arm,
            limits=LIMITS,
            prices={"*": self._price},
            timeout_seconds=CODE_SECONDS,
            tools=self._tools,
        )
        answer, error = "", ""
        try:
            answer = (await agent.run(task.prompt)).text
        except (AgentError, McpExecError) as failure:
            error = str(failure)[:500]
        trace = agent.trace
        if trace is None:
            raise RuntimeError(f"{task.task}: {error}")
        counted = trace.tokens
        return LiveRun(
            task=task.task,
            arm=arm,
            succeeded=not error and await self._judge(judgement, answer, before),
            error=error,
            turns=trace.turns,
            input=counted.input + counted.cache_read + counted.cache_write,
            cached=counted.cache_read,
            output=counted.output,
            money=round(1000 * float(trace.cost or 0), 2),
            seconds=round(trace.milliseconds / 1000, 1),
        )

    async def _judge(self, judgement: Judgement, answer: str, before: Any) -> bool:
        if not judgement.accepts(answer):
            return False
        return not judgement.after or await self._execute(judgement.after, {"before": before}) is True

    async def _execute(self, code: str, context: Mapping[str, Any]) -> Any:
        done = await self._executor.execute(code, context)
        if not done.success:
            raise RuntimeError(f"the servers of the tasks cannot be used: {done.error}")
        return done.result


def summarise(runs: Sequence[LiveRun], *, model: str, price: tuple[Decimal, Decimal]) -> dict[str, Any]:
    """Return the figures of all runs."""
    arms = {}
    for arm in ARMS:
        own = [run for run in runs if run.arm == arm]
        arms[arm] = {
            "runs": len(own),
            "succeeded": sum(run.succeeded for run in own),
            "input": sum(run.input for run in own),
            "output": sum(run.output for run in own),
            "money": round(sum(run.money for run in own), 2),
            "turns": sum(run.turns for run in own),
            "seconds": round(median(run.seconds for run in own), 1) if own else 0.0,
        }
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "model": model,
        "prices": [float(each) for each in price],
        "arms": arms,
        "runs": [asdict(run) for run in runs],
    }


async def open_model(options: argparse.Namespace, stack: AsyncExitStack) -> ModelProvider:
    """Return access to the model; nothing is sent yet. Raises ModelNotChosen."""
    choice = ModelChoice.read(os.environ, provider=options.provider, model=options.model)
    return await choice.open(stack, os.environ)


async def check(options: argparse.Namespace) -> None:
    """Raise ModelNotChosen if there is no model."""
    async with AsyncExitStack() as stack:
        await open_model(options, stack)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the tasks and return the figures."""
    input_price, output_price = options.price
    price = TokenPrice(
        input=input_price,
        output=output_price,
        cache_read=input_price * Decimal(str(READ)),
        cache_write=input_price * Decimal(str(WRITE)),
    )
    chosen = [task for task in load_transcripts() if not options.task or task.task in options.task]
    runs: list[LiveRun] = []
    async with AsyncExitStack() as stack:
        provider = await open_model(options, stack)
        arms = LiveArms(await stack.enter_async_context(AsyncClient()), provider, price)
        await arms.prepare()
        for task in chosen:
            for arm in ARMS * options.repeat:
                runs.append(await arms.run(task, arm))
                print(token_report.live_line(asdict(runs[-1])), flush=True)
        return summarise(runs, model=provider.model, price=options.price)


def parse_price(text: str) -> tuple[Decimal, Decimal]:
    """Return the prices of a million tokens, of input and of output."""
    first, _, second = text.partition(",")
    try:
        return Decimal(first), Decimal(second)
    except ArithmeticError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be INPUT,OUTPUT, for example 3,15") from None


def main() -> None:
    """Run the tasks, print the table, and write what the options ask for."""
    names = [task.task for task in load_transcripts()]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--provider", choices=PROVIDERS, help="API of the model; default: by the environment")
    parser.add_argument("--model", metavar="NAME", help="model; default: as for `mcp-exec agent`")
    parser.add_argument(
        "--price",
        metavar="INPUT,OUTPUT",
        type=parse_price,
        default=(Decimal(str(INPUT)), Decimal(str(OUTPUT))),
        help=f"dollars for a million tokens; default: {INPUT:g},{OUTPUT:g}",
    )
    parser.add_argument("--task", action="append", choices=names, help="only this task; can be repeated")
    parser.add_argument("--repeat", type=int, choices=range(1, 21), metavar="1-20", default=1, help="runs of each task")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all figures")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/agents/savings.md")
    parser.add_argument("--check", action="store_true", help="only check the options and the choice of the model")
    parser.add_argument("--servers", nargs=2, metavar=("IMAGE", "RUNTIME"), help="print the ToolServers, as JSON")
    options = parser.parse_args()
    if options.servers:
        items = build_servers(options.servers[0], options.servers[1] or None)
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1))
        return
    try:
        if options.check:
            asyncio.run(check(options))
            return
        found = asyncio.run(measure(options))
    except (ModelNotChosen, McpExecError, RuntimeError) as error:
        sys.exit(f"bench/live.py: {error}")
    print(f"\n{token_report.live_table(found)}")
    write_json(options.json, found)
    if options.write:
        figures = json.loads(tokens.FIGURES.read_text()) | {"live": found}
        tokens.FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
        token_report.PAGE.write_text(token_report.fill_page(token_report.PAGE.read_text(), figures))


if __name__ == "__main__":
    main()
