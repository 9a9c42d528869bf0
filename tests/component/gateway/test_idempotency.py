"""An Idempotency-Key makes a retry safe."""

import asyncio

from tests.component.gateway.conftest import CEX, KEY, SECRETS, Gateway, key_entry, keys_secret
from tests.support.api_server import FakeApiServer, Fault
from tests.support.until import until

from mcp_exec_gateway.core.executions.index import ANNOTATION_IDEMPOTENCY

AGAIN = {"Idempotency-Key": "order 66"}


async def test_two_at_once_make_one_execution_and_get_one_answer(gateway: Gateway) -> None:
    asking = [asyncio.create_task(gateway.post(headers=AGAIN)) for _ in range(4)]
    await until(lambda: gateway.dependencies.index.wait_count == 4 and len(gateway.executions) == 1)
    gateway.finish(next(iter(gateway.executions)))
    answers = await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert len(gateway.executions) == 1


async def test_a_retry_after_the_end_gets_the_same_answer(gateway: Gateway) -> None:
    gateway.finish_all()
    first = await gateway.post(headers=AGAIN)
    second = await gateway.post(headers=AGAIN)
    third = await gateway.post(query="?wait=0", headers=AGAIN)
    assert (first.status, second.status, third.status) == (200, 200, 200)
    assert first.json == second.json == third.json
    assert gateway.dependencies.index.count_active("agents", "team-a") == 0


async def test_a_retry_may_write_the_same_body_otherwise(gateway: Gateway) -> None:
    first = await gateway.post(b'{"code":"1","context":{"a":1.0,"b":2},"timeoutSeconds":30}', "?wait=0", headers=AGAIN)
    second = await gateway.post(b'{ "context":{"b":2,"a":1.0}, "code":"1"}', "?wait=0", headers=AGAIN)
    assert first.json["name"] == second.json["name"]


async def test_another_body_is_refused(gateway: Gateway) -> None:
    first = await gateway.post({"code": "1"}, "?wait=0", headers=AGAIN)
    answer = await gateway.post({"code": "2"}, "?wait=0", headers=AGAIN)
    assert answer.status == 422
    assert answer.json["type"] == "urn:mcp-exec:problem:key-reused"
    assert answer.json["errors"][0]["field"] == "Idempotency-Key"
    assert answer.json["execution"] == first.json["name"]
    assert len(gateway.executions) == 1


async def test_the_same_key_of_another_caller_is_another_execution(gateway: Gateway, api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY), "team-c": key_entry("mcpx_c")}))
    await until(lambda: gateway.dependencies.keys.find("mcpx_c") is not None)
    first = await gateway.post(query="?wait=0", headers=AGAIN)
    second = await gateway.post(query="?wait=0", headers=AGAIN, key="mcpx_c")
    assert first.json["name"] != second.json["name"]


async def test_a_name_that_another_object_has_is_a_conflict(gateway: Gateway, api: FakeApiServer) -> None:
    name = (await gateway.post(query="?wait=0", headers=AGAIN)).json["name"]
    api.remove(CEX, name)
    api.put(CEX, {"metadata": {"name": name}, "spec": {"code": "1"}})
    answer = await gateway.post(query="?wait=0", headers=AGAIN)
    assert (answer.status, answer.json["type"]) == (409, "urn:mcp-exec:problem:conflict")


async def test_an_execution_that_somebody_else_marked_with_the_key_is_not_the_callers(
    gateway: Gateway, api: FakeApiServer
) -> None:
    """If no admission policy refuses it, anybody can copy the annotations, or guess the digest of a key."""
    name = (await gateway.post(query="?wait=0", headers=AGAIN)).json["name"]
    original = gateway.executions[name]
    api.remove(CEX, name)
    marks = {each: original["metadata"][each] for each in ("labels", "annotations")}
    forged = {"metadata": {"name": name, **marks}, "spec": {**original["spec"], "code": "print('of a stranger')"}}
    api.put(CEX, forged)
    answer = await gateway.post(query="?wait=0", headers=AGAIN)
    assert (answer.status, answer.json["type"]) == (409, "urn:mcp-exec:problem:conflict")
    keys, digest = gateway.dependencies.index.request_keys, marks["annotations"][ANNOTATION_IDEMPOTENCY]
    await until(lambda: keys.find("agents", digest) == name)
    named = await gateway.post({"code": "1", "name": "mine"}, query="?wait=0", headers=AGAIN)
    assert (named.status, named.json["name"]) == (202, "mine")


async def test_an_answer_that_was_lost_is_found_again(gateway: Gateway, api: FakeApiServer) -> None:
    api.faults.append(Fault("POST", "/codeexecutions", "lost after"))
    first = await gateway.post(query="?wait=0", headers=AGAIN)
    assert first.status == 202
    assert (await gateway.post(query="?wait=0", headers=AGAIN)).json["name"] == first.json["name"]


async def test_a_retry_is_served_when_the_key_has_all_it_may_have(gateway: Gateway, api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, maxConcurrent=1)}))
    keys = gateway.dependencies.keys
    await until(lambda: (found := keys.find(KEY)) is not None and found.entry.limits.max_concurrent == 1)
    first = await gateway.post(query="?wait=0", headers=AGAIN)
    assert (await gateway.post(query="?wait=0")).status == 429
    assert (await gateway.post(query="?wait=0", headers=AGAIN)).json["name"] == first.json["name"]
