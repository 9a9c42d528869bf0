"""The clock of a run while a call waits for an approval, as the operator extends it."""

import json

CODE = """
import time
time.sleep(2.3)
print("still here", flush=True)
time.sleep(60)
"""


def extend(sandbox, **body):
    return sandbox.client.put("/v1/execution/extension", json=body)


def test_a_run_goes_on_beyond_its_time_limit_until_its_extension_ends(sandbox):
    assert extend(sandbox, id="uid-1", seconds=1).status_code == 409
    lines = sandbox.start(CODE, timeoutSeconds=2).iter_lines()
    assert extend(sandbox, id="uid-1", seconds=3600).json() == {"seconds": 3600.0}
    assert extend(sandbox, id="uid-2", seconds=0).status_code == 409
    assert [json.loads(next(lines))["type"] for _ in range(2)] == ["status", "stdout"]
    assert extend(sandbox, id="uid-1", seconds=0.1).status_code == 200
    *_, end = [json.loads(line) for line in lines]
    assert (end["phase"], end["reason"]) == ("TimedOut", "Timeout")
    message = "the code ran longer than 2 s, without the 0.1 s that a call waited for an approval"
    assert end["error"]["message"] == message
    assert extend(sandbox, id="uid-1", seconds=1).status_code == 409


def test_an_extension_out_of_bounds_is_refused(sandbox):
    for seconds in (-1, 3601, "1", None, True, 10**400):
        answer = extend(sandbox, id="uid-1", seconds=seconds)
        assert (answer.status_code, answer.json()["error"]) == (400, "seconds: must be a number from 0 to 3600")
    assert extend(sandbox, seconds=1).json()["error"] == "id: must be a string"
    assert extend(sandbox, id="uid-1", seconds=1, more=1).json()["error"] == "more: unknown field"
