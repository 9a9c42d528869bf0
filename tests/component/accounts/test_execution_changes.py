"""Changes of an execution after its creation, by an account that may write executions, on a real API server."""

from typing import Any

import pytest
from tests.component.accounts.conftest import OWNER
from tests.component.accounts.objects import NAMESPACE
from tests.component.accounts.server import Server

EXECUTIONS = f"/apis/mcp-exec.dev/v1beta1/namespaces/{NAMESPACE}/codeexecutions"


def create(server: Server, name: str, **spec: Any) -> str:
    item = {"apiVersion": "mcp-exec.dev/v1beta1", "kind": "CodeExecution", "metadata": {"name": name}}
    server.send("POST", EXECUTIONS, {**item, "spec": {"code": "1", **spec}}, user=OWNER)
    return f"{EXECUTIONS}/{name}"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("changed", {"a": {"deep": [1]}}, {"a": {"deep": [2]}}),
        ("added", None, {"a": 1}),
        ("removed", {"a": 1}, {"a": None}),
    ],
)
def test_a_change_of_the_context_is_refused(server: Server, name: str, before: Any, after: dict[str, Any]) -> None:
    path = create(server, f"context-{name}", **({} if before is None else {"context": before}))
    refused = server.request("PATCH", path, {"spec": {"context": after}}, user=OWNER)
    assert refused.status_code == 422, refused.text
    assert "spec.context is immutable; create another execution" in refused.json()["message"]


def test_what_may_change_still_changes_in_an_execution_with_a_context(server: Server) -> None:
    path = create(server, "context-kept", context={"a": {"deep": [1, None, "x"]}})
    changes = {"ttlSecondsAfterFinished": 5, "cancelRequested": True, "context": {"a": {"deep": [1, None, "x"]}}}
    for name, value in changes.items():
        assert server.request("PATCH", path, {"spec": {name: value}}, user=OWNER).is_success
