"""A steady load of executions through the gateway. A request that failed is repeated by its Idempotency-Key."""

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e.journal import TELL

_PATIENCE_SECONDS = 120.0
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
            kept = {"session" if turn % 2 else "workspace": f"chaos-{self.run}-{pool}-{place}"}
            self._submit(f"chaos-{self.run}-{number:05}", pool, kept, f"user-{place}")
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
                "/v1/executions", params={"wait": "0"}, json=body, headers={"Idempotency-Key": me}, timeout=15
            )
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        return (
            dict(response.json()) if response.status_code in (200, 202) else f"{response.status_code} {response.text}"
        )
