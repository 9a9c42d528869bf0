"""What lasts, through the client: sessions, artifacts, files of workspaces."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.scripted_gateway import Chunks, execution, problem, scripted

from mcp_exec_client import blocking as blocking_state
from mcp_exec_client import errors
from mcp_exec_client.blocking import BlockingExecution
from mcp_exec_client.state import results, sessions, skills, workspaces

PNG = b"\x89PNG\r\n\x1a\n0"


def sent(gateway: Any) -> list[tuple[str, Any]]:
    """Return method and path, and the JSON body, of each request."""
    return [
        (f"{each.method} {each.url.path}", json.loads(each.content) if each.content else None)
        for each in gateway.requests
    ]


def artifact(content: bytes = PNG, **fields: Any) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"id": "a1", "name": "plot.png", "mediaType": "image/png", "bytes": len(content), "sha256": digest, **fields}


def download(*parts: bytes) -> httpx.Response:
    return httpx.Response(200, stream=Chunks(parts))


async def test_a_session_with_limits_is_created_unless_it_exists_and_one_without_a_name_is_deleted() -> None:
    gateway = scripted(problem(409, "conflict"), execution(), httpx.Response(204))
    async with gateway.client().session(idle_timeout_seconds=60, pool="large") as session:
        await session.run("1")
    created, ran, deleted = sent(gateway)
    limits = {"poolRef": {"name": "large"}, "idleTimeoutSeconds": 60}
    assert created == ("POST /v1/sessions", {"name": session.name, **limits})
    assert ran[1] == {"code": "1", "session": session.name, "poolRef": {"name": "large"}}
    assert deleted == (f"DELETE /v1/sessions/{session.name}", None)


async def test_an_artifact_of_a_result_is_read_and_saved(tmp_path: Path) -> None:
    hostile = artifact(name="../../etc/.plot\x1b.png", id="a2")
    gateway = scripted(execution(artifacts=[artifact(), hostile]), download(PNG[:3], PNG[3:]), download(PNG))
    first, second = (await gateway.client().run("1")).artifacts
    assert await first.read() == PNG
    saved = await second.save(tmp_path)
    assert (saved.parent, saved.name, saved.read_bytes()) == (tmp_path, "plot_.png", PNG)
    assert [name for name, _ in sent(gateway)][1:] == [
        "GET /v1/executions/e1/artifacts/a1",
        "GET /v1/executions/e1/artifacts/a2",
    ]


async def test_an_artifact_that_is_not_what_it_should_be_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    gateway = scripted(execution(artifacts=[artifact()]), download(b"other"), download(PNG), download(b"o"))
    client = gateway.client()
    (found,) = (await client.run("1")).artifacts
    with pytest.raises(errors.UnexpectedResponse, match="digest"):
        await found.read()
    with pytest.raises(errors.UnexpectedResponse, match="more than 3 bytes"):
        await found.read(max_bytes=3)
    with pytest.raises(errors.UnexpectedResponse, match="digest"):
        await found.save(tmp_path / "plot.png")
    assert os.listdir(tmp_path) == []
    with pytest.raises(errors.McpExecError, match="does not come from a client"):
        await results.ExecutionArtifact.model_validate(artifact()).read()


@pytest.mark.parametrize(
    ("group", "blocking"),
    [
        (sessions.Sessions, blocking_state.BlockingSessions),
        (sessions.OpenSession, blocking_state.BlockingSession),
        (workspaces.Artifacts, blocking_state.BlockingArtifacts),
        (skills.Skills, blocking_state.BlockingSkills),
    ],
)
def test_a_blocking_group_has_every_method(group: type, blocking: type) -> None:
    names = {name for name in vars(group) if not name.startswith("_")} - {"attach"}
    assert names - set(dir(blocking)) == set()


def test_a_blocking_execution_has_every_field_and_blocking_artifacts() -> None:
    assert BlockingExecution.model_fields.keys() == BlockingExecution.__mro__[1].model_fields.keys()  # type: ignore[attr-defined]
