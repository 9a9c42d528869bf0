"""A steady load of executions through the gateway. A request that failed is repeated by its Idempotency-Key."""

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e.journal import TELL

_PATIENCE_SECONDS = 120.0


@dataclass(kw_only=True)
class Load:
    """Sends one execution at each `every` seconds, to the pools in turn."""

    client: httpx.Client
    journal: str
    pools: tuple[str, ...]
    every: float
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    """Keeps the keys of two runs on one cluster apart."""
    names: dict[str, str] = field(default_factory=dict)
    """The execution that stands for each request: what it calls itself, by its name as an object."""
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
            self._submit(f"chaos-{self.run}-{number:05}", self.pools[number % len(self.pools)])
            number, due = number + 1, max(due + self.every, time.monotonic() - 1)

    def _submit(self, me: str, pool: str) -> None:
        body = {
            "code": TELL,
            "context": {"journal": self.journal, "me": me},
            "poolRef": {"name": pool},
            "timeoutSeconds": 60,
        }
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._post(body, me)
            if isinstance(answer, dict):
                self.names[str(answer["name"])] = me
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
