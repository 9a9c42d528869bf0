"""The chat service of examples/chat_app on the cluster: the same question by direct calls and by code."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.support import Cluster, Gateway
from tests.e2e.toolservers import IMAGE, running
from tests.support.pace import paced

pytestmark = pytest.mark.timeout(300)
EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTION = "Which five customers wait for pending orders of the highest value?"


@contextmanager
def serving_chat(**environment: str) -> Iterator[str]:
    """Run the chat service with its scripted model, and return its address."""
    command = [sys.executable, "-m", "chat_app", "--offline", "--port", "0"]
    with subprocess.Popen(
        command, cwd=EXAMPLES, env=os.environ | environment, stderr=subprocess.PIPE, text=True
    ) as service:
        assert service.stderr is not None
        try:
            for line in service.stderr:
                if "running on http" in line:
                    yield line.partition("running on ")[2].split()[0]
                    return
            raise AssertionError("the chat service ended")
        finally:
            service.terminate()


def ask(url: str, *, by_code: bool) -> list[tuple[str, dict[str, Any]]]:
    """Send the question and return the events of its answer."""
    body = {"message": QUESTION, "use_code_execution": by_code}
    answer = httpx.post(f"{url}/api/chat", json=body, timeout=paced(120))
    assert answer.status_code == 200, answer.text
    events = [part.split("\n") for part in answer.text.split("\n\n") if part]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in events]


def test_the_shop_s_question_has_the_same_answer_by_direct_calls_and_by_code(
    installed: Cluster, gateway: Gateway, url: str, api_key: str
) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "chat_app.toolserver", IMAGE],
        cwd=EXAMPLES, capture_output=True, text=True, check=True, timeout=paced(60),
    )  # fmt: skip
    with (
        running(installed, json.loads(made.stdout)),
        serving_chat(MCP_EXEC_GATEWAY=url, MCP_EXEC_API_KEY=api_key) as chat,
    ):
        answers = {by_code: ask(chat, by_code=by_code) for by_code in (False, True)}
    texts = ["".join(data["text"] for kind, data in events if kind == "text") for events in answers.values()]
    assert texts[0].count("\n") == 4, answers
    assert texts[1] == texts[0]
    steps = [data["kind"] for kind, data in answers[True] if kind == "step"]
    assert [step for step in steps if step != "output"] == ["code", "execute", "results"]
    (started,) = [data for kind, data in answers[True] if kind == "start"]
    found = gateway.client.get("/v1/executions", params={"conversation": started["conversation"]}).json()["items"]
    assert [each["phase"] for each in found] == ["Succeeded"]
