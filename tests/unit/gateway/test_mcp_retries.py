"""Cache of runs by their calls, and the annotations that it reads: bounded, and nothing hostile gets in."""

from typing import Any

import pytest

from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.features.mcp.calls import (
    ANNOTATION_CALL,
    ANNOTATION_UNDELIVERED,
    CallCache,
    CallIdentity,
    Mark,
    create_holder,
    read_holder_since,
)
from mcp_exec_gateway.features.mcp.request import gave_up

DIGEST = "a" * 64
MARK = str(Mark(digest=DIGEST, milliseconds=1_700_000_000_000))


def execution(name: str = "e", *, phase: str = "Running", call: Any = DIGEST, undelivered: Any = "") -> dict[str, Any]:
    annotations = {ANNOTATION_CALL: call, ANNOTATION_UNDELIVERED: undelivered}
    metadata = {"namespace": "agents", "name": name, "creationTimestamp": "2026-11-25T00:00:00Z"}
    return {"metadata": {**metadata, "annotations": annotations}, "status": {"phase": phase}}


def names(cache: CallCache) -> list[str]:
    return [run.key[1] for run in cache.find("agents", DIGEST)]


def test_runs_that_go_on_and_answers_that_nobody_had_are_kept() -> None:
    cache = CallCache()
    cache.observe(execution("running"))
    cache.observe(execution("left", phase="Succeeded", undelivered=MARK))
    cache.observe(execution("answered", phase="Succeeded"))
    assert names(cache) == ["left", "running"]
    cache.observe(execution("left", phase="Succeeded", undelivered=create_holder(1_700_000_000_000)))
    cache.observe(execution("running"), deleted=True)
    assert (names(cache), len(cache)) == ([], 0)


def test_a_flood_of_runs_displaces_the_oldest() -> None:
    cache = CallCache()
    for number in range(20_010):
        cache.observe(execution(f"e{number}"))
    assert len(cache) == 20_000
    assert len(names(cache)) == 20_000
    assert cache.get(("agents", "e9")) is None


@pytest.mark.parametrize("value", ["", "x", DIGEST + ".", DIGEST + ".zz", "A" * 64, "a" * 10_000, ["a"], 5, {"a": 1}])
def test_other_annotations_are_no_calls_and_no_marks(value: Any) -> None:
    cache = CallCache()
    cache.observe(execution(call=value, undelivered=value))
    assert len(cache) == 0
    cache.observe(execution(undelivered=value))
    assert [run.mark for run in cache.find("agents", DIGEST)] == [None]


def test_annotations_return_as_they_were_written() -> None:
    mark = Mark(digest=DIGEST, milliseconds=1_700_000_000_000, cancelled=True)
    assert Mark.read(execution(undelivered=str(mark))["metadata"]) == mark
    call = CallIdentity(digest=DIGEST, session="b" * 16)
    assert CallIdentity.read(execution(call=str(call))["metadata"]) == call
    holder = create_holder(1_700_000_000_000)
    assert read_holder_since(execution(undelivered=holder)["metadata"]) == 1_700_000_000
    assert Mark.read(execution(undelivered=holder)["metadata"]) is None


def test_digests_of_calls_need_the_releases_key() -> None:
    caller = Caller(name="team-a", label="team-a", namespace="agents", limits=KeyLimits())
    spec = {"code": "1", "context": {}, "poolRef": {"name": "default"}, "timeoutSeconds": 30, "limits": {}}

    def digest(key: bytes = b"k", **changes: Any) -> str:
        created = CallIdentity.create(
            spec | changes, keys=SandboxKeys(key), caller=caller, conversation="", session_id="s"
        )
        return created.digest

    assert digest() == digest(description="other words")
    assert len({digest(), digest(key=b"l"), digest(code="2"), digest(user="u"), digest(timeoutSeconds=31)}) == 5


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("timed out after 60.0s", True),
        ("McpError: MCP error -32001: Request timed out", True),
        ("Error: request timeout", True),
        ("time-out", True),
        ("caller cancelled", False),
        ("AbortError: This operation was aborted", False),
        ("the user stopped it at lunchtime outside", False),
        (None, False),
        ({"a": "timeout"}, False),
        ("x" * 1_000_000 + "timeout", False),
    ],
)
def test_the_reason_of_a_cancellation_says_who_gave_up(reason: Any, expected: bool) -> None:
    assert gave_up(reason) == expected
