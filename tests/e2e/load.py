"""A steady load of executions through the gateway, and what must be true of each afterwards.

A request that failed is repeated by its Idempotency-Key.
"""

import secrets
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e.journal import TELL
from tests.e2e.support import Cluster
from tests.support.pace import paced

_PATIENCE_SECONDS = paced(120.0)
PLACES = 2
"""Sessions, and workspaces, of each pool. Every execution has one of either kind."""
REMEMBER = """
history = [*globals().get("history", []), me]
"""
"""Code whose result is what ran in this interpreter."""
RECORD = """
import pathlib
ledgers = [pathlib.Path(name) for name in ("ledger", "copy")]
before = [path.read_text().split() if path.exists() else [] for path in ledgers]
for path in ledgers:
    path.write_text(" ".join([*before[0], me]))
"""
"""Code that adds itself to two files. The result is what both contained before."""


ENDS = ("Succeeded", "Failed", "TimedOut", "Cancelled")
LOSSES = {
    *("SandboxLost", "SupervisorDied", "StreamBroken", "NodeLost", "Evicted"),
    *("PoolUnavailable", "Unschedulable", "PodFailed", "QueueFull"),
    *("SessionLost", "SessionBusy"),
    *("WorkspaceBusy", "WorkspaceUnavailable"),
}
"""How an execution may fail when the ground goes: never with a reason that blames its code."""


@dataclass(kw_only=True)
class Load:
    """Sends one execution at each `every` seconds, to the pools in turn."""

    client: httpx.Client
    journal: str
    pools: tuple[str, ...]
    every: float
    reusing: frozenset[str] = frozenset()
    """Pools whose pods serve their owners again. There, executions have one of two users."""
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    """Keeps the keys of two runs on one cluster apart."""
    names: dict[str, str] = field(default_factory=dict)
    """The execution that stands for each request: what it calls itself, by its name as an object."""
    sessions: dict[str, str] = field(default_factory=dict)
    """The session of each execution that runs in one, by the name of its object."""
    workspaces: dict[str, str] = field(default_factory=dict)
    """The workspace of each other execution, by the name of its object."""
    owners: dict[str, str] = field(default_factory=dict)
    """Whose pods an execution of a pool that reuses pods may have, by the name of its object."""
    refused: list[str] = field(default_factory=list)
    """What was not accepted in the end, and why."""
    retries: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Load":
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(_PATIENCE_SECONDS + 30)

    def _run(self) -> None:
        number, due = 0, time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            pool = self.pools[number % len(self.pools)]
            turn = number // len(self.pools)
            place = turn // 2 % PLACES
            kept = {"session" if turn % 2 else "workspace": f"load-{self.run}-{pool}-{place}"}
            self._submit(f"load-{self.run}-{number:05}", pool, kept, f"user-{place}")
            number, due = number + 1, max(due + self.every, time.monotonic() - 1)

    def _submit(self, me: str, pool: str, kept: dict[str, str], user: str) -> None:
        body: dict[str, Any] = {
            "code": TELL + (REMEMBER + "history" if "session" in kept else RECORD + "before"),
            "context": {"journal": self.journal, "me": me},
            "poolRef": {"name": pool},
            "timeoutSeconds": 60,
            **kept,
            **({"user": user} if pool in self.reusing else {}),
        }
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._post(body, me)
            if isinstance(answer, dict):
                self.names[str(answer["name"])] = me
                if "session" in kept:
                    self.sessions[str(answer["name"])] = kept["session"]
                else:
                    self.workspaces[str(answer["name"])] = kept["workspace"]
                if pool in self.reusing:
                    self.owners[str(answer["name"])] = f"{user} in {pool}"
                return
            if time.monotonic() > deadline:
                self.refused.append(f"{me}: {answer}")
                return
            self.retries += 1
            threading.Event().wait(0.5)

    def _post(self, body: dict[str, Any], me: str) -> dict[str, Any] | str:
        try:
            response = self.client.post(
                "/v1/executions", params={"wait": "0"}, json=body, headers={"Idempotency-Key": me}, timeout=paced(15)
            )
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        return (
            dict(response.json()) if response.status_code in (200, 202) else f"{response.status_code} {response.text}"
        )


def executions(cluster: Cluster, names: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The statuses of the load's executions."""
    items = cluster.select("CodeExecution")
    return {each["metadata"]["name"]: each.get("status", {}) for each in items if each["metadata"]["name"] in names}


def violations(load: Load, statuses: dict[str, Any], entries: list[tuple[str, str]]) -> list[str]:
    """Every difference between what is said or happened and what must be."""
    names = load.names
    found = [f"{name} is lost" for name in names if name not in statuses]
    runs = Counter(me for me, _ in entries)
    found += [f"{me} ran {times} times" for me, times in runs.items() if times > 1]
    # a pod serves one execution, or those of one session, or of one owner if the pool reuses pods
    owners = {me: load.owners.get(name) or load.sessions.get(name, me) for name, me in names.items()}
    users: dict[str, set[str]] = defaultdict(set)
    for me, pod in entries:
        users[pod].add(owners.get(me, me))
    found += [f"pod {pod} served {sorted(each)}" for pod, each in users.items() if len(each) > 1]
    found += forgotten(load, statuses) + unsaved(load, statuses)
    pods = dict(entries)
    for name, status in statuses.items():
        me, phase, reason = names[name], status.get("phase"), status.get("reason", "")
        if phase == "Succeeded":
            if status["output"]["stdout"] != f"{me}\n" or pods.get(me) != status["podName"]:
                found.append(f"{name} did not do what its status says: {status}; it ran in {pods.get(me)}")
        elif phase != "Failed" or reason not in LOSSES:
            found.append(f"{name} ended {phase} {reason}: {status}")
        elif me in pods and status.get("podName") != pods[me]:
            found.append(f"{name} ran in {pods[me]}, its status says {status.get('podName')}")
    return found


def forgotten(load: Load, statuses: dict[str, Any]) -> list[str]:
    """Every execution of a session that lacked what earlier ones had left, although no loss was reported."""
    found: list[str] = []
    ends: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, session in load.sessions.items():
        if name in statuses:
            ends[session].append((str(statuses[name].get("finishedAt")), name))
    for session, each in ends.items():
        kept: list[str] = []
        for _, name in sorted(each):
            status, me = statuses[name], load.names[name]
            if status.get("reason") == "SessionLost":
                kept = []
            elif status.get("phase") == "Succeeded":
                history = status["output"]["result"]
                if history[-1:] != [me] or [one for one in history if one in kept] != kept:
                    found.append(f"{session}: {name} found {history} after {kept}")
                kept = history
    return found


def unsaved(load: Load, statuses: dict[str, Any]) -> list[str]:
    """Every execution that found its workspace without what an acknowledged version has, or half of a version."""
    found: list[str] = []
    runs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, workspace in load.workspaces.items():
        version = (statuses.get(name, {}).get("workspace") or {}).get("version")
        if version is not None:
            runs[workspace].append((version, name))
    for workspace, each in runs.items():
        kept: list[str] = []
        versions = [version for version, _ in each]
        if len(set(versions)) < len(versions):
            found.append(f"{workspace}: two executions saved the same version: {sorted(each)}")
        for _, name in sorted(each):
            ledger, copy = statuses[name]["output"]["result"]
            if ledger != copy or [one for one in ledger if one in kept] != kept:
                found.append(f"{workspace}: {name} found {ledger} and {copy} after {kept}")
            kept = [*ledger, load.names[name]]
    return found
