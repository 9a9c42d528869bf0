"""Profiles of bench/profiles.py: how they are read, and what a stack counts for."""

import gzip
from collections.abc import Sequence

import pprof
import pytest
from activities import ACTIVITIES, OTHER, PARTS, REQUESTS, Rules, classify, compute_shares, list_functions
from pprof import BadProfile, Sample, read_go_profile, read_python_profile
from profiles import divide

HANDLERS = "k8s.io/apiserver/pkg/endpoints/handlers."


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def build_profile(*, packed: bool) -> bytes:
    """Return a profile of two stacks, one of them with an inlined function, and with a field that is not read."""
    names = ["", "samples", "main", "encode", "inlined"]
    stacks = [([1, 2], [7, 70]), ([300], [5, 50])]
    samples = [
        message(2, message(1, *map(varint, locations)), message(2, *map(varint, values)))
        if packed
        else message(2, *(number(1, each) for each in locations), *(number(2, each) for each in values))
        for locations, values in stacks
    ]
    locations = [
        message(4, number(1, 1), message(4, number(1, 12), number(2, 99)), message(4, number(1, 11))),
        message(4, number(1, 2), number(3, 2**63), message(4, number(1, 10))),
        message(4, number(1, 300), message(4, number(1, 10))),
    ]
    functions = [message(5, number(1, each), number(2, index)) for each, index in ((10, 2), (11, 3), (12, 4))]
    period = varint(12 << 3 | 1) + b"\0" * 8
    return gzip.compress(
        b"".join([*samples, period, *locations, *functions, *(message(6, each.encode()) for each in names)])
    )


@pytest.mark.parametrize("packed", [True, False])
def test_a_go_profile_gives_stacks_with_inlined_functions_innermost_first(packed: bool) -> None:
    assert read_go_profile(build_profile(packed=packed)) == [
        Sample(frames=("inlined", "encode", "main"), count=7),
        Sample(frames=("main",), count=5),
    ]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"404 page not found", "incorrect header"),
        (build_profile(packed=True)[:-20], "is cut after"),
        (gzip.compress(message(2, number(1, 1), number(2, 1))), "KeyError 1"),
        (gzip.compress(message(2, number(1, 1))), "IndexError"),
        (gzip.compress(varint(2 << 3 | 3)), "unknown type 3"),
        (gzip.compress(varint(2 << 3 | 2) + varint(1000) + b"abc"), "a field of 1000 bytes, but only 3 follow"),
        (gzip.compress(b"\xff" * 20), "a number of more than 10 bytes"),
        (gzip.compress(number(2, 1)), "a number stands in the place of a message"),
        (gzip.compress(message(5, message(1, b"a"))), "a message stands in the place of a number"),
    ],
)
def test_a_malformed_go_profile_is_refused_with_the_fault(data: bytes, fault: str) -> None:
    with pytest.raises(BadProfile, match=fault):
        read_go_profile(data)


def test_a_go_profile_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pprof, "MAX_BYTES", 1000)
    with pytest.raises(BadProfile, match="more than 1000 bytes"):
        read_go_profile(gzip.compress(b"\0" * 2000))


def test_stacks_of_py_spy_are_read_innermost_first() -> None:
    text = "run (asyncio/runners.py);loads (json/__init__.py) 12\nrun (asyncio/runners.py) 3\n"
    assert read_python_profile(text) == [
        Sample(frames=("loads (json/__init__.py)", "run (asyncio/runners.py)"), count=12),
        Sample(frames=("run (asyncio/runners.py)",), count=3),
    ]


def test_a_line_without_a_count_is_refused() -> None:
    with pytest.raises(BadProfile, match="must end with a count: 'Error: no process'"):
        read_python_profile("Error: no process")


@pytest.mark.parametrize(
    ("rules", "frames", "activity"),
    [
        (
            REQUESTS,
            ["encoding/json.Marshal", f"{HANDLERS}PatchResource.func1", "net/http.(*conn).serve"],
            "pods, changed",
        ),
        (REQUESTS, [f"{HANDLERS}(*WatchServer).HandleHTTP", f"{HANDLERS}ListResource.func1"], "watches, sent"),
        (REQUESTS, ["a.(*crdHandler).serveStatus.UpdateResource.func2.4"], "status of executions, written"),
        (REQUESTS, [f"{HANDLERS}UpdateResource.func1"], "leases and others, updated"),
        (REQUESTS, ["a.(*crdHandler).serveResource.CreateResource.createHandler.func9"], "executions, created"),
        (REQUESTS, [f"{HANDLERS}CreateNamedResource.createHandler.func1.2"], "pods and events, created"),
        (REQUESTS, ["runtime.scanobject", "runtime.gcBgMarkWorker"], "garbage collection"),
        (REQUESTS, ["crypto/tls.(*Conn).Read", "net/http.(*conn).serve"], "connections"),
        (ACTIVITIES, ["runtime.memmove", "runtime.growslice", "encoding/json.Marshal"], "allocation"),
        (ACTIVITIES, ["runtime.memmove", "encoding/json.Marshal", f"{HANDLERS}PatchResource"], "encoding, JSON"),
        (ACTIVITIES, ["sigs.k8s.io/structured-merge-diff/v6/typed.merge"], "field management"),
        (ACTIVITIES, ["k8s.io/api/core/v1.(*Pod).DeepCopyInto", "k8s.io/apiserver/pkg/endpoints/x"], "copies"),
        (PARTS, ["decode (json/decoder.py)", "watch (mcp_exec_common/kube/client.py)"], "JSON"),
        (PARTS, ["<genexpr> (enum.py)", "observe (mcp_exec_operator/core/pods/cache.py)"], "pods and pools"),
        (PARTS, ["observe (mcp_exec_operator/features/tools/part.py)"], "features"),
        (PARTS, ["run (asyncio/runners.py)", "main (mcp_exec_operator/__main__.py)"], "event loop, TLS and sockets"),
        (PARTS, ["<module> (<string>)"], OTHER),
    ],
)
def test_the_innermost_frame_with_a_rule_decides(rules: Rules, frames: Sequence[str], activity: str) -> None:
    assert classify(Sample(frames=tuple(frames), count=1), rules) == activity


SAMPLES = [
    Sample(frames=("decode (json/decoder.py)", "observe (mcp_exec_operator/core/pods/cache.py)"), count=5),
    Sample(frames=("observe (mcp_exec_operator/core/pods/cache.py)",), count=2),
    Sample(frames=("<module> (<string>)",), count=3),
]


def test_shares_are_percent_of_all_samples_and_what_has_no_rule_comes_last() -> None:
    shares = compute_shares(SAMPLES, PARTS)
    assert list(shares.items()) == [("JSON", 50.0), ("pods and pools", 20.0), (OTHER, 30.0)]


def test_a_thread_that_waits_for_work_does_not_count() -> None:
    idle = Sample(frames=("_worker (concurrent/futures/thread.py)", "Thread.run (threading.py)"), count=90)
    assert compute_shares([*SAMPLES, idle], PARTS) == compute_shares(SAMPLES, PARTS)


def test_an_activity_takes_its_share_of_the_time_of_an_execution() -> None:
    assert divide(SAMPLES, PARTS, spent=8.0)["JSON"] == {"share": 50.0, "ms": 4.0}


def test_functions_are_counted_once_a_stack_with_or_without_those_they_call() -> None:
    assert list_functions(SAMPLES, most=1) == {"decode (json/decoder.py)": 50.0}
    whole = list_functions([*SAMPLES, Sample(frames=("f", "f"), count=10)], most=2, whole=True)
    assert whole == {"f": 50.0, "observe (mcp_exec_operator/core/pods/cache.py)": 35.0}
