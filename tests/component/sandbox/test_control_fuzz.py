"""A fuzzer of the control channel of a whole sandbox: its supervisor, its runner, and code that writes anything.

The code is Python's. What the supervisor makes of the channel is the same in each language.
"""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.component.sandbox.conftest import SandboxProcess, Spares
from tests.support.fuzz import fuzz_settings

from mcp_exec_sandbox.supervisor.execution.watchdog import UNCONFIRMED_SECONDS

SECONDS = 0.3
GRACE_MS = 700

fields = st.sampled_from(
    [
        b'"value":' + b"[" * 1000,
        b'"value":' + b"[" * 300 + b"]" * 300,
        b'"value":1e999',
        b'"value":"\\ud800"',
        b'"hasValue":true',
        b'"error":{"type":5,"message":[]}',
        b'"exitCode":1e5',
        b'"written":[9007199254740991,1]',
        b'"id":"","tool":""',
        b'"traceback":"' + b"x" * 300_000 + b'"',
    ]
)
kinds = st.sampled_from(
    [b"done", b"interrupted", b"tool_call", b"tool_result", b"approval", b"ready", b"end", b"\\ud800"]
)
lines = st.builds(
    lambda kind, parts: b'{"type":"' + kind + b'",' + b",".join(parts) + b"}\n", kinds, st.lists(fields, max_size=3)
) | st.binary(max_size=50)


@pytest.mark.fuzz
@fuzz_settings(6)
@given(data=st.lists(lines, max_size=10), repeats=st.booleans(), forks=st.booleans())
def test_whatever_code_writes_to_the_channel_its_run_ends_once_and_in_time(
    spares: Spares, data: list[bytes], repeats: bool, forks: bool
) -> None:
    code = (
        "import base64, os, signal, socket\n"
        "channel = socket.socket(fileno=os.dup(3))\n"
        f"data = base64.b64decode({base64.b64encode(b''.join(data)).decode()!r})\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"{forks} and os.fork()\n"
        f"while data:\n    channel.sendall(data)\n    if not {repeats}: break\n"
        "while True: signal.pause()\n"
    )
    sandbox: SandboxProcess = spares.take()
    try:
        run = sandbox.run(code, timeoutSeconds=SECONDS)
        assert [event["type"] for event in run.events].count("end") == 1
        assert run.end["type"] == "end"
        # code can forge that a call waits for an approval, which postpones the end for a moment, once
        assert run.end["runMs"] < (SECONDS + UNCONFIRMED_SECONDS) * 1000 + GRACE_MS + 1000
        assert sandbox.client.get("/healthz").json()["state"] == "finished"
    finally:
        sandbox.close()
