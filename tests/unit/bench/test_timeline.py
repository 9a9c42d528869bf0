"""Stages of an execution in bench/timeline.py, from what client, gateway, operator and audit log recorded."""

import asyncio
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stamps
from stamps import LAG_SECONDS, Stamps
from tests.support.until import until
from timeline import STAGES, TOTAL, divide, join, read_server


def event(verb: str, name: str, *, subresource: str = "", at: str, code: int = 200) -> str:
    target = {"resource": "codeexecutions", "namespace": "bench-nodes", "name": name, "subresource": subresource}
    second = f"2026-11-29T10:00:{at}"
    found: dict[str, Any] = {
        "verb": verb, "stage": "ResponseComplete", "responseStatus": {"code": code}, "objectRef": target,
        "requestReceivedTimestamp": f"{second}.000000Z", "stageTimestamp": f"{second}.500000Z",
    }  # fmt: skip
    return json.dumps(found) + "\n"


def test_the_first_update_of_a_status_binds_and_the_last_one_ends(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(
        event("create", "before", at="01")
        + event("create", "a", at="10", code=201)
        + event("update", "a", subresource="status", at="11")
        + event("update", "a", subresource="status", at="12", code=409)
        + event("update", "a", subresource="status", at="13")
        + event("delete", "a", at="14")
    )
    found = read_server(log, len(event("create", "before", at="01")))
    assert found.keys() == {"a"}
    start = found["a"]["create received"]
    assert {point: at - start for point, at in found["a"].items()} == {
        "create received": 0.0, "create answered": 0.5, "bind received": 1.0, "bind answered": 1.5,
        "finish received": 3.0, "finish answered": 3.5,
    }  # fmt: skip


def test_the_means_of_all_stages_add_up_to_the_time_of_the_client() -> None:
    points = ["client sent", *STAGES]
    moves = [{point: float(index) for index, point in enumerate(points)} for _ in range(2)]
    moves[1]["operator event received"] -= 1.5  # the event came before the answer
    rows = divide(moves)
    assert list(rows) == [*STAGES.values(), TOTAL]
    assert rows["watch to the operator"] == {"p50": -500.0, "p99": 1000.0, "mean": 250.0}
    in_all = rows[TOTAL]["mean"]
    assert sum(row["mean"] for stage, row in rows.items() if stage != TOTAL) == in_all == 1000.0 * len(STAGES)


def test_without_an_audit_log_the_next_stage_has_the_time_of_the_api_server() -> None:
    client = {"a": {"client sent": 0.0, "client answered": 9.0}}
    parts = {"server": {}, "gateway": {"a": {"create sent": 1.0}}, "operator": {"a": {"event received": 5.0}, "b": {}}}
    rows = divide(join(client, parts))
    assert {stage: row["mean"] for stage, row in rows.items()} == {
        "gateway: checks, name, proof": 1000.0, "watch to the operator": 4000.0, "gateway to client": 4000.0,
        TOTAL: 9000.0,
    }  # fmt: skip


class Part:
    """A part of the product."""

    def observe(self, name: str) -> str:
        return f"observed {name}"

    async def serve(self, name: str) -> str:
        if name == "wrong":
            raise ValueError(name)
        return f"served {name}"


async def test_a_part_works_as_before_while_its_first_calls_are_recorded() -> None:
    class Stamped(Part):
        observe, serve = Part.observe, Part.serve

    recorded = Stamps()
    recorded.at_call(Stamped, "observe", "seen", lambda _self, name: name)
    recorded.around(Stamped, "serve", "received", "responded", lambda _self, name: name)
    part = Stamped()
    assert (part.observe("a"), await part.serve("a"), part.observe("")) == ("observed a", "served a", "observed ")
    first = dict(recorded.moments["a"])
    assert list(first) == ["seen", "received", "responded"]
    assert first["seen"] <= first["received"] <= first["responded"]
    assert part.observe("a")
    assert recorded.moments == {"a": first}
    with pytest.raises(ValueError, match="wrong"):
        await part.serve("wrong")
    assert list(recorded.moments["wrong"]) == ["received", "responded"]


def test_a_timer_that_comes_late_shows_how_late_the_event_loop_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.Runner, "run", asyncio.Runner.run)  # it is restored afterwards
    clock = itertools.chain([1.0, 1.0 + LAG_SECONDS + 0.05], itertools.repeat(2.0))
    monkeypatch.setattr(stamps, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    recorded = Stamps()
    recorded.measure_loop()

    async def work() -> str:
        await until(lambda: bool(recorded.lags))
        return "done"

    with asyncio.Runner() as runner:
        assert runner.run(work()) == "done"
    assert recorded.lags[0] == pytest.approx(50)
