"""A sandbox that the network does not hold accepts no code."""

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from mcp_exec_sandbox.supervisor.network_check import wait_until_isolated

SECONDS = 20


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_it_is_ready_where_the_forbidden_address_does_not_answer(make_sandbox, listener):
    port = listener.getsockname()[1]
    listener.close()
    sandbox = make_sandbox(forbidden_address=f"127.0.0.1:{port}")
    assert sandbox.client.get("/healthz").json()["state"] == "idle"
    assert sandbox.run("1").end["phase"] == "Succeeded"


def test_it_ends_with_a_sentence_where_the_forbidden_address_goes_on_answering(make_sandbox, listener):
    sandbox = make_sandbox(forbidden_address=f"127.0.0.1:{listener.getsockname()[1]}")
    assert sandbox.process.wait(SECONDS) == 1
    message = json.loads(sandbox.process.stdout.readline())["message"]
    assert "no NetworkPolicy is enforced" in message


async def test_a_policy_that_comes_into_force_late_is_waited_for(listener):
    host, port = listener.getsockname()
    accepted = threading.Event()

    def answer_once() -> None:
        listener.accept()[0].close()
        listener.close()
        accepted.set()

    thread = threading.Thread(target=answer_once)
    thread.start()
    assert await wait_until_isolated(host, port, seconds=SECONDS)
    assert accepted.is_set()
    thread.join()


@pytest.mark.parametrize("address", ["nowhere", ":443", "host:port"])
def test_what_is_no_address_is_refused(make_sandbox, address):
    sandbox = make_sandbox(forbidden_address=address)
    assert sandbox.process.wait(SECONDS) == 2
    assert b"MCP_EXEC_FORBIDDEN_ADDRESS" in sandbox.process.stderr.read()
