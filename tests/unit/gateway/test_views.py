from typing import Any

import pytest
from tests.support.api_server import build_table
from tests.support.constants import SANDBOX_KEY

from mcp_exec_api.wire.executions import Execution, ExecutionSummary
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.pages import name_cells
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.core.executions.lists import ExecutionEntry, read_row
from mcp_exec_gateway.core.executions.views import build_summary, build_view
from mcp_exec_gateway.core.http.json import json_response, to_json

CREATED = "2026-11-21T20:00:00.123456Z"
ATTESTOR = Attestor(keys=SandboxKeys(SANDBOX_KEY))


def made(status: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "exec-a",
            "namespace": "agents",
            "creationTimestamp": "2026-11-21T20:00:00Z",
            "labels": {"mcp-exec.dev/caller": "team-a"},
            "annotations": annotations,
        },
        "spec": {"code": "1", "poolRef": {"name": "big"}},
        **({"status": status} if status else {}),
    }


def listed(execution: dict[str, Any], *, by_table: bool = False) -> dict[str, Any]:
    """Return the execution as a list shows it, if the gateway knows the whole object or a table's row."""
    if by_table:
        table = build_table([execution])
        execution = read_row(name_cells(table["columnDefinitions"], table["rows"][0]))
    caller = ATTESTOR.read_listed_caller(execution["metadata"])
    return build_summary(ExecutionEntry.from_object(execution, caller=caller), namespace="agents")


def test_what_has_no_status_yet_is_pending_since_it_was_created() -> None:
    view = build_view(made(**{"mcp-exec.dev/created-at": CREATED}), attestor=ATTESTOR)
    assert (view["phase"], view["reason"], view["createdAt"], view["pool"]) == ("Pending", "", CREATED, "big")
    assert build_view(made(), attestor=ATTESTOR)["createdAt"] == "2026-11-21T20:00:00Z"


def test_empty_texts_that_are_not_stored_are_shown() -> None:
    view = build_view(made({"phase": "Failed", "output": {"stdout": "x"}, "error": {"type": "E"}}), attestor=ATTESTOR)
    assert view["output"] == {
        "stdout": "x",
        "stderr": "",
        "stdoutBytes": 0,
        "stderrBytes": 0,
        "truncated": False,
    }
    assert view["error"] == {"message": "", "type": "E"}
    assert view["reason"] == ""


@pytest.mark.parametrize("status", [None, {"phase": "Running", "podName": "p"}, {"phase": "Succeeded", "output": {}}])
def test_views_are_what_their_models_say(status: dict[str, Any] | None) -> None:
    Execution.model_validate_json(to_json(build_view(made(status), attestor=ATTESTOR)))
    ExecutionSummary.model_validate_json(to_json(listed(made(status))))


def test_a_list_shows_an_execution_as_a_get_does() -> None:
    status = {"phase": "Failed", "reason": "UserError", "start": "Warm", "podName": "p", "duration": "12ms"}
    item = made({**status, "createdAt": CREATED, "finishedAt": CREATED, "output": {"stdout": "x"}})
    item["spec"]["description"] = "what for"
    item["metadata"]["labels"] |= {"own": "x", "mcp-exec.dev/conversation": "c", "mcp-exec.dev/use-case": "other"}
    view = build_view(item, attestor=ATTESTOR)
    del view["output"]
    assert listed(item) == listed(item, by_table=True) == view


def test_what_came_past_the_gateway_is_shown_as_well() -> None:
    bare = {"metadata": {"name": "a", "namespace": "agents", "creationTimestamp": "2026-11-21T20:00:00Z"}, "spec": {}}
    assert build_view(bare, attestor=ATTESTOR) == {
        "name": "a",
        "namespace": "agents",
        "pool": "default",
        "phase": "Pending",
        "reason": "",
        "createdAt": "2026-11-21T20:00:00Z",
    }


def test_text_that_is_no_unicode_does_not_break_an_answer() -> None:
    assert json_response({"a": "\ud800 ü"}).body == '{"a":"? ü"}'.encode()
