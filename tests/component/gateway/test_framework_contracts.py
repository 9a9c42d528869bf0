"""Our side of what frameworks ask: the requests that each example sent with its real package, sent again.

`RECORD=yes make frameworks` wrote them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import KEY, Gateway, serving
from tests.support.api_server import FakeApiServer
from tests.support.broker import CATALOG, FakeBroker

ROOT = Path(__file__).parents[3]
RECORDED = {path.stem: json.loads(path.read_text()) for path in (ROOT / "tests" / "data" / "frameworks").glob("*.json")}
EXPENSES = {"server": "expenses", "available": True, "description": "", "tools": [
    {"name": "get_expenses", "description": "Expenses", "inputSchema": {"type": "object"}}]}  # fmt: skip


async def send_again(gateway: Gateway, exchange: dict[str, Any], session: str) -> tuple[int, Any, str]:
    headers = {**exchange["headers"], "Authorization": f"Bearer {KEY}"}
    headers |= {"Mcp-Session-Id": session} if exchange["has_session"] else {}
    body = None if exchange["body"] is None else json.dumps(exchange["body"])
    address = f"{gateway.url}{exchange['path']}"
    async with gateway.session.request(exchange["method"], address, data=body, headers=headers) as answer:
        text = await answer.text()
        data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
        content = json.loads(data[-1] if data else text or "null")
        return answer.status, content, answer.headers.get("Mcp-Session-Id", session)


@pytest.mark.parametrize("name", sorted(RECORDED))
async def test_what_a_framework_asked_is_answered_as_it_was(api: FakeApiServer, broker: FakeBroker, name: str) -> None:
    broker.catalogs["agents"] = {**CATALOG, "servers": [EXPENSES]}
    exchanges = RECORDED[name]["exchanges"]
    session, called = "", []
    async with serving(api, broker_service="mcp-exec-broker") as gateway:
        gateway.finish_all()
        for exchange in exchanges:
            status, content, session = await send_again(gateway, exchange, session)
            assert status == exchange["status"], (exchange["body"], content)
            if (exchange["body"] or {}).get("method") == "tools/call":
                called.append(content["result"]["structuredContent"]["phase"])
            elif isinstance(content, dict) and "jsonrpc" in content:
                assert "result" in content, content
        assert called == ["Succeeded"] * (exchanges[0]["path"].startswith("/mcp"))


def test_each_example_of_a_framework_has_a_recording() -> None:
    assert sorted(RECORDED) == sorted(path.stem for path in (ROOT / "examples" / "frameworks").glob("*.py"))


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recording_belongs_to_the_packages_that_are_installed_now(name: str) -> None:
    files = (ROOT / "examples" / "frameworks" / "requirements").glob("*.in")
    pinned = [[line.split()[0] for line in file.read_text().splitlines() if "==" in line] for file in files]
    assert RECORDED[name]["packages"] in pinned, "run: RECORD=yes make frameworks"
