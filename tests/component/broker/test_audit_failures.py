"""Calls without an audit record are not made, and a broker that cannot audit is neither live nor ready."""

import sqlite3

import pytest
from tests.component.broker.conftest import World
from tests.component.broker.servers import Toolbox
from tests.support.until import until

from mcp_exec_broker.features.records.audit import log as audit_log


async def test_a_call_that_cannot_be_recorded_is_not_made(world: World, box: Toolbox) -> None:
    path = world.broker.settings.audit_file
    assert (await world.call("box.add", a=1, b=2))["value"] == 3
    with sqlite3.connect(path, isolation_level=None) as file:
        file.execute("ALTER TABLE calls RENAME TO hidden")  # what follows is an error of the file
    file.close()
    answer = await world.call("box.add", a=1, b=2)
    assert (answer["kind"], answer["reason"]) == ("ToolProtocolError", "AuditUnavailable")
    assert "the call was not made" in answer["message"]
    assert box.calls == ["add"]
    denied = await world.call("box.nothing")
    assert denied["reason"] == "NoSuchTool"


async def test_a_broker_whose_audit_writer_has_ended_is_restarted(
    world: World, box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(file: sqlite3.Connection) -> None:
        raise SystemExit

    monkeypatch.setattr(audit_log, "select_usage", die)
    with pytest.raises(sqlite3.OperationalError, match="has ended"):
        await world.broker.pipeline.audit.load_usage()
    await until(lambda: world.broker.features["records"].failure)
    for path in ("/healthz", "/readyz"):
        status, body = await world.ask("GET", path)
        assert (status, body["status"]) == (503, "failed")
    assert (await world.call("box.add", a=1, b=2))["reason"] == "AuditUnavailable"
    assert box.calls == []
