"""The stream of a real supervisor, and the same text from the status afterwards."""

import asyncio

from tests.component.gateway.conftest import CEX, DEADLINE, PODS, Gateway, serving
from tests.component.gateway.test_events import Reader, text
from tests.support.api_server import FakeApiServer
from tests.support.constants import POD

from mcp_exec_common.supervisor.client import SupervisorConnection
from mcp_exec_common.supervisor.protocol import EndEvent, Event, Job, ResultEvent, TextEvent

CODE = """
import sys
for number in range(5):
    print(number, "ä" * number)
    print("e", number, file=sys.stderr, flush=True)
print("x" * 20000)
{"total": 42}
"""


async def operate(gateway: Gateway, name: str, sandbox: SupervisorConnection) -> None:
    """Run one execution as the operator does."""
    made = gateway.api.merge(CEX, name, {"status": {"phase": "Running", "podName": POD}})
    job = Job(id=made["metadata"]["uid"], code=made["spec"]["code"], context={}, timeout_seconds=10, output_bytes=4096)
    events: list[Event] = [event async for event in sandbox.run(job, timeout_seconds=DEADLINE)]
    end = events[-1]
    assert isinstance(end, EndEvent)
    output = {
        kind: "".join(event.text for event in events if isinstance(event, TextEvent) and event.type == kind)
        for kind in ("stdout", "stderr")
    }
    results = [event.value for event in events if isinstance(event, ResultEvent)]
    gateway.finish(name, phase=str(end.phase), output={**output, **({"result": results[0]} if results else {})})


async def test_live_and_from_the_status_a_real_run_reads_the_same(api: FakeApiServer, supervisor_port: int) -> None:
    async with serving(api, sandbox_port=supervisor_port) as gateway:
        api.put(PODS, {"metadata": {"name": POD}, "status": {"podIP": "127.0.0.1"}})
        name = (await gateway.post({"code": CODE}, "?wait=0")).json["name"]
        reading = asyncio.create_task(Reader(gateway, name).upto())
        sandbox = gateway.dependencies.supervisors.get_connection(namespace="agents", pod=POD, address="127.0.0.1")
        async with asyncio.timeout(DEADLINE):
            await operate(gateway, name, sandbox)
        live = await reading
        later = await Reader(gateway, name).upto()
        for kind in ("stdout", "stderr"):
            assert text(live, kind) == text(later, kind)
        assert text(live, "stderr") == "".join(f"e {number}\n" for number in range(5))
        assert "bytes cut" in text(live, "stdout")
        assert [f["value"] for f in live if f["type"] == "result"] == [{"total": 42}]
        for index, frame in enumerate(live[:-1]):
            rest = await Reader(gateway, name, frame["id"]).upto()
            for kind in ("stdout", "stderr"):
                assert text(live[: index + 1] + rest, kind) == text(live, kind)
            assert [f["type"] for f in live[: index + 1] + rest].count("result") == 1
