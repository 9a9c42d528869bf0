"""Measure what a workspace adds to a run: real supervisors and a real broker process on a volume, over loopback.

For 1, 1,000 and 10,000 files of 1 KiB: the first save, a cold start (a new sandbox fetches all files), and in a session
that has them already a run that changes nothing and a run that changes one file. Each is compared with the same run
without a workspace, in another session, in alternating order. The supervisors run natively, so that the figures are a
floor for gVisor.

    python bench/workspace.py --json workspace.json
"""

import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness import parser, run, table, write_json
from tests.component.sandbox.conftest import SandboxProcess
from tools import KEY, run_broker

from mcp_exec_api.files import WorkspaceMode
from mcp_exec_common.broker.files import ArtifactAllowance, FilesGrant, WorkspaceAccess
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.sandbox_keys import SandboxKeys

COUNTS = (1, 1_000, 10_000)
AS_IN_A_POD = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""The supervisor is process 1 of its own PID namespace, so that it does not list this machine's processes."""
ROUNDS, COLD_ROUNDS = 15, 4
"""Default numbers of rounds."""
OWNER = "0a" * 16
FILL = """
import os
for number in range({count}):
    os.makedirs(f"folder-{{number // 100}}", exist_ok=True)
    with open(f"folder-{{number // 100}}/file-{{number}}.bin", "wb") as file:
        file.write(os.urandom(1024))
"""
NOTHING, CHANGE = "None", "import os; open('folder-0/file-0.bin', 'wb').write(os.urandom(1024)); None"


def build_job(url: str, name: str) -> dict[str, Any]:
    """Return the field `files` of a job that writes to a workspace."""
    grant = FilesGrant(
        namespace="agents",
        owner=OWNER,
        caller=OWNER,
        execution=str(uuid.uuid4()),
        workspace=WorkspaceAccess(name=name, mode=WorkspaceMode.WRITE),
        artifacts=ArtifactAllowance(),
        pod_address="127.0.0.1",
        replica="",
        expires=int(time.time()) + 400,
    )
    token = GrantSigner(keys=SandboxKeys(KEY)).sign(grant)
    workspace = {"name": name, "mode": "Write"}
    return {"url": url, "token": token, "workspace": workspace, "maxArtifacts": 1, "maxArtifactBytes": 1024}


def measure(sandbox: SandboxProcess, code: str, **fields: Any) -> tuple[float, dict[str, Any]]:
    """Run code and return the milliseconds from the request to the last event, and that event."""
    session = {"id": str(uuid.uuid4()), "owner": OWNER, "session": True}
    client = sandbox.client
    started = time.perf_counter()
    done = sandbox.run(code, **session, **fields)
    elapsed = (time.perf_counter() - started) * 1000
    client.get("/v1/execution")  # waits until the sandbox is idle again
    if done.phase != "Succeeded" or (done.end.get("workspace") or {}).get("reason"):
        raise RuntimeError(f"the run failed: {done.end}")
    return elapsed, done.end


def compare(first: Callable[[], float], second: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Return the medians of two measures in alternating order."""
    pairs = [(first(), second()) for _ in range(rounds)]
    return median(one for one, _ in pairs), median(two for _, two in pairs)


def measure_workspace(url: str, count: int, *, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the milliseconds that each kind of run takes with and without a workspace of so many files."""
    name = f"w{count}"
    warm, plain = (SandboxProcess(wrapper=AS_IN_A_POD, storage_bytes=str(1 << 30)) for _ in range(2))
    try:
        measure(plain, NOTHING)
        first, end = measure(warm, FILL.format(count=count), files=build_job(url, name), timeoutSeconds=120)
        assert end["workspace"]["version"] == 1
        bare, unchanged = compare(
            lambda: measure(plain, NOTHING)[0],
            lambda: measure(warm, NOTHING, files=build_job(url, name))[0],
            rounds,
        )
        _, changed = compare(
            lambda: measure(plain, NOTHING)[0],
            lambda: measure(warm, CHANGE, files=build_job(url, name))[0],
            rounds,
        )
    finally:
        warm.close()
        plain.close()
    new_bare, cold = compare(
        lambda: measure_cold(), lambda: measure_cold(files=build_job(url, name)), min(rounds, COLD_ROUNDS)
    )
    return {
        "first save": first,
        "cold, added": cold - new_bare,
        "session, bare": bare,
        "unchanged, added": unchanged - bare,
        "one changed, added": changed - bare,
    }


def measure_cold(**fields: Any) -> float:
    """Return the milliseconds of the first run of a new sandbox."""
    sandbox = SandboxProcess(wrapper=AS_IN_A_POD, storage_bytes=str(1 << 30))
    try:
        return measure(sandbox, NOTHING, **fields)[0]
    finally:
        sandbox.close()


async def measure_all(json_file: Path | None, counts: Sequence[int] = COUNTS, *, rounds: int = ROUNDS) -> None:
    """Run a broker, measure each number of files, and print a table."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        async with run_broker(folder, settings={"FILES_FOLDER": str(folder / "files")}) as broker:
            rows = {}
            for count in counts:
                figures = await asyncio.to_thread(measure_workspace, broker.url, count, rounds=rounds)
                rows[f"{count} files"] = {name: round(value, 1) for name, value in figures.items()}
                print(json.dumps({str(count): figures}), flush=True)
    print("milliseconds\n" + table(rows))
    write_json(json_file, {"workspace": rows})


if __name__ == "__main__":
    found = parser(__doc__)
    found.add_argument("--files", type=int, nargs="+", default=COUNTS, help="numbers of files")
    found.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each kind of run (default: {ROUNDS})")
    options = found.parse_args()
    run(measure_all(options.json, options.files, rounds=options.rounds))
