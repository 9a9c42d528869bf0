"""The examples of frameworks, each with its real package in an environment of its own, on a cluster, without a key.

`make frameworks` runs them. A loopback server stands in for the model; everything else is real.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.recording import recording
from tests.support.model_servers import chat_api, messages_api
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.responses_api import ResponsesApi
from tests.support.model_servers.script import Block, Request, says, uses
from tests.support.model_servers.server import ModelServer
from tests.support.pace import paced

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
ENVIRONMENTS = Path(os.environ.get("MCP_EXEC_CACHE", Path.home() / ".cache" / "mcp-exec")) / "frameworks"
RECORDED = ROOT / "tests" / "data" / "frameworks"
"""What each example asks the gateway. `RECORD=yes make frameworks` writes it, and the component tests ask it again."""
SECONDS = paced(240)
CODE = """\
from servers.expenses import get_expenses

rows = await get_expenses(user_id="u-42")
print("count:", sum(row["amount"] > 100 for row in rows))
"""
COUNT = re.compile(r"count: ([0-9]+)")
SQUARES = (
    "seq 1 20 | while read n; do echo $((n * n)); done > squares.txt; "
    "total=0; while read n; do total=$((total + n)); done < squares.txt; echo sum: $total"
)
pytestmark = pytest.mark.timeout(SECONDS + 60)


class StoringResponsesApi(ResponsesApi):
    """The Responses API that keeps what it answered, as it does by default: reasoning items need no content."""

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        if headers.get("authorization") != f"Bearer {chat_api.KEY}" or request.get("store") is False:
            return "no key, or nothing is stored"
        items = request["input"] if isinstance(request["input"], list) else []
        kinds = {kind: {each["call_id"] for each in items if each.get("type") == kind} for kind in CALLS}
        return "" if kinds[CALLS[0]] == kinds[CALLS[1]] else f"No tool output found for a function call of {kinds}"


CALLS = ("function_call", "function_call_output")


def find_tool(request: Request, name: str) -> str:
    """Return the name of a tool as the framework shows it to the model."""
    names = [tool["name"] for tool in request["tools"]]
    return next(each for each in names if each == name or each.endswith(f"_{name}"))


def run_code(request: Request) -> list[Block]:
    return [uses(find_tool(request, "run_code"), code=CODE)]


def answer(request: Request) -> list[Block]:
    """Answer with the number that the code printed, in the form that the framework asks for."""
    (count, *_) = COUNT.findall(json.dumps(request))
    if "format" in request.get("output_config", {}):
        return [says(json.dumps({"count": int(count)}))]
    return [says(f"The count is {count}.")]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One program, its environment, and the model that it talks to."""

    name: str
    environment: str
    build: Callable[[], ModelServer]
    expected: str


def by_messages() -> ModelServer:
    return MessagesApi(run_code, answer)


EXAMPLES_OF_FRAMEWORKS = (
    Example(
        name="claude_agent_sdk_mcp",
        environment="claude-agent-sdk",
        build=by_messages,
        expected=r"-> mcp__mcp-exec__run_code\n.*The count is [1-9]",
    ),
    Example(
        name="langgraph_agent",
        environment="langchain",
        build=by_messages,
        expected=r"-> run_code\n.*The count is [1-9]",
    ),
    Example(
        name="pydantic_ai_agent",
        environment="pydantic-ai",
        build=by_messages,
        expected=r"-> run_code\n.*The count is [1-9]",
    ),
    Example(
        name="openai_agents_mcp",
        environment="openai-agents",
        build=lambda: StoringResponsesApi(run_code, answer),
        expected=r"-> run_code\nThe count is [1-9]",
    ),
    Example(
        name="openai_agents_sandbox",
        environment="openai-agents",
        build=lambda: StoringResponsesApi(
            [uses("exec_command", cmd=SQUARES)],
            [uses("exec_command", cmd="wc -l < squares.txt")],
            [says("It is 2870.")],
        ),
        expected=r"-> exec_command\nsum: 2870\n-> exec_command\n20\nIt is 2870\.",
    ),
)


def list_packages(environment: str) -> list[str]:
    """Return the packages that an environment is made for, with their versions."""
    text = (EXAMPLES / "requirements" / f"{environment}.in").read_text()
    return [line.split()[0] for line in text.splitlines() if "==" in line]


@pytest.mark.parametrize("example", EXAMPLES_OF_FRAMEWORKS, ids=lambda example: example.name)
def test_an_example_does_its_task(example: Example, tmp_path: Path) -> None:
    packages = ("client", "common", "crds", "tools")
    with example.build().serving() as model, recording(os.environ["MCP_EXEC_GATEWAY"]) as gateway:
        environment: dict[str, Any] = {
            **{name: os.environ[name] for name in ("PATH", "MCP_EXEC_API_KEY")},
            "MCP_EXEC_GATEWAY": gateway.url,
            "HOME": str(tmp_path),
            "NO_PROXY": "*",
            "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in packages),
            "ANTHROPIC_API_KEY": messages_api.KEY,
            "ANTHROPIC_BASE_URL": model.url,
            "OPENAI_API_KEY": chat_api.KEY,
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "LLM_MODEL": "claude-sonnet-5-5" if isinstance(model, MessagesApi) else "gpt-5",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        done = subprocess.run(
            [ENVIRONMENTS / example.environment / "bin" / "python", EXAMPLES / f"{example.name}.py"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert re.search(example.expected, done.stdout, re.DOTALL), done.stdout[-2000:] + done.stderr[-4000:]
    assert model.script == []
    if os.environ.get("RECORD"):
        text = json.dumps({"packages": list_packages(example.environment), "exchanges": gateway.exchanges}, indent=1)
        (RECORDED / f"{example.name}.json").write_text(re.sub(r"agent-[0-9a-f]{12}", "agent-0", text) + "\n")
