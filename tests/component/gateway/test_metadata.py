"""What identifies an execution: name, description, labels, conversation, use case, and the code on request."""

import asyncio
from typing import Any

import pytest
from tests.component.gateway.conftest import CEX, Gateway
from tests.support.api_server import FakeApiServer, Fault
from tests.support.until import until

from mcp_exec_api.wire.executions import Execution

ABOUT = {
    "name": "monday-report",
    "description": "Sum of Monday's orders, über alles",
    "labels": {"team": "x", "Empty": ""},
    "conversation": "c-42",
    "useCase": "workflow",
}
AGAIN = {"Idempotency-Key": "order 66"}


async def test_what_identifies_an_execution_is_stored_and_shown(gateway: Gateway) -> None:
    answer = await gateway.post({"code": "print(1)", **ABOUT}, "?wait=0")
    assert answer.status == 202
    assert answer.headers["Location"] == "/v1/executions/monday-report"
    made = gateway.executions["monday-report"]
    assert made["spec"]["description"] == ABOUT["description"]
    assert made["metadata"]["labels"] == {
        "team": "x",
        "Empty": "",
        "app.kubernetes.io/managed-by": "mcp-exec",
        "mcp-exec.dev/caller": "team-a",
        "mcp-exec.dev/conversation": "c-42",
        "mcp-exec.dev/use-case": "workflow",
    }
    assert not {"name", "labels", "conversation", "useCase"} & set(made["spec"])
    assert ABOUT.items() <= answer.json.items()
    view = await gateway.ask("GET", "/v1/executions/monday-report")
    assert ABOUT.items() <= view.json.items()
    Execution.model_validate_json(view.text)


async def test_the_code_comes_on_request_alone(gateway: Gateway) -> None:
    name = (await gateway.post({"code": "print('ü')"}, "?wait=0")).json["name"]
    assert "code" not in (await gateway.ask("GET", f"/v1/executions/{name}")).json
    assert (await gateway.ask("GET", f"/v1/executions/{name}?include=code")).json["code"] == "print('ü')"
    refused = await gateway.ask("GET", f"/v1/executions/{name}?include=context")
    assert refused.status == 422
    assert (refused.json["errors"][0]["field"], "'code'" in refused.json["detail"]) == ("include", True)


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({"name": "Monday"}, "name", "lower-case letters"),
        ({"name": "a.b"}, "name", "lower-case letters"),
        ({"name": "a" * 64}, "name", "1 to 63"),
        ({"name": "exec-01k9x3v5t8q2"}, "name", "generated"),
        ({"description": "d" * 201}, "description", "200"),
        ({"description": "a\nb"}, "description", "line breaks"),
        ({"labels": {"mcp-exec.dev/caller": "team-b"}}, "labels", "no prefix"),
        ({"labels": {"a b": "x"}}, "labels", "the key 'a b'"),
        ({"labels": {"team": "x y"}}, "labels", "the value 'x y' of team"),
        ({"labels": {"k" * 64: "x"}}, "labels", "1 to 63"),
        ({"labels": {f"k{number}": "x" for number in range(17)}}, "labels", "at most 16"),
        ({"labels": {"team": 1}}, "labels.team", "string"),
        ({"conversation": "a/b"}, "conversation", "letters, digits"),
        ({"conversation": ""}, "conversation", "1 to 63"),
        ({"useCase": "fun"}, "useCase", "'filtering', 'workflow', 'polling' or 'other'"),
    ],
)
async def test_what_is_not_allowed_is_refused_with_its_rule(
    gateway: Gateway, body: dict[str, Any], field: str, rule: str
) -> None:
    answer = await gateway.post({"code": "1", **body}, "?wait=0")
    assert answer.status == 422
    assert [error["field"] for error in answer.json["errors"]] == [field]
    assert rule in answer.json["detail"]
    assert not gateway.executions


async def test_a_name_that_is_taken_is_a_conflict_and_no_retry(gateway: Gateway, api: FakeApiServer) -> None:
    assert (await gateway.post({"code": "1", "name": "mine"}, "?wait=0")).status == 202
    for headers in ({}, AGAIN):
        answer = await gateway.post({"code": "1", "name": "mine"}, "?wait=0", headers=headers)
        assert (answer.status, answer.json["type"]) == (409, "urn:mcp-exec:problem:conflict")
        assert answer.json["errors"] == [{"field": "name", "message": "mine is taken"}]
        assert answer.json["execution"] == "mine"
    api.faults.append(Fault("POST", "/codeexecutions", "lost after"))
    assert (await gateway.post({"code": "1", "name": "other"}, "?wait=0")).status == 202
    assert sorted(gateway.executions) == ["mine", "other"]


async def test_a_retry_of_a_named_execution_is_the_same_execution(gateway: Gateway) -> None:
    body = {"code": "1", **ABOUT}
    answers = await asyncio.gather(*(gateway.post(body, "?wait=0", headers=AGAIN) for _ in range(4)))
    assert [answer.status for answer in answers] == [202] * 4
    assert list(gateway.executions) == ["monday-report"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"name": "a"}, {"name": "b"}),
        ({"name": "a"}, {}),
        ({}, {"name": "b"}),
        ({"labels": {"a": "1"}}, {"labels": {"a": "2"}}),
        ({}, {"conversation": "c"}),
        ({"useCase": "polling"}, {}),
        ({"description": "x"}, {"description": "y"}),
    ],
)
async def test_a_key_with_another_name_or_label_is_another_body(
    gateway: Gateway, first: dict[str, Any], second: dict[str, Any]
) -> None:
    name = (await gateway.post({"code": "1", **first}, "?wait=0", headers=AGAIN)).json["name"]
    for _ in range(2):
        answer = await gateway.post({"code": "1", **second}, "?wait=0", headers=AGAIN)
        assert (answer.status, answer.json["type"]) == (422, "urn:mcp-exec:problem:key-reused")
        assert answer.json["execution"] == name
    assert list(gateway.executions) == [name]


async def test_a_key_is_free_again_when_its_execution_is_gone(gateway: Gateway, api: FakeApiServer) -> None:
    await gateway.post({"code": "1", "name": "a"}, "?wait=0", headers=AGAIN)
    assert (await gateway.post({"code": "1", "name": "b"}, "?wait=0", headers=AGAIN)).status == 422
    api.remove(CEX, "a")
    keys = gateway.dependencies.index.request_keys
    await until(lambda: not keys.count())
    assert (await gateway.post({"code": "1", "name": "b"}, "?wait=0", headers=AGAIN)).json["name"] == "b"
