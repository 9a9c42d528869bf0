"""The benchmark of latency by several callers: its order and its figures, with a release that answers at once."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import latency
import pytest
from harness import TimedExecution

DURATIONS = dict.fromkeys(("queued", "bind", "dispatch", "run", "collect", "total"), 1.0)


@dataclass(frozen=True)
class Release:
    """A release that notes who runs what."""

    headers: dict[str, str]
    order: list[str]
    milliseconds: Iterator[int]

    async def scale(self, name: str, warm: int) -> None: ...

    async def wait_until_settled(self, name: str) -> None:
        self.order.append("settled")

    async def pool(self, name: str) -> dict[str, Any]:
        return {"spec": {"language": name} if name == "typescript" else {}}

    async def time_execution(self, pool: str, *, code: str) -> TimedExecution:
        self.order.append(self.headers["Authorization"] if code == "print(1)" else f"{code} in {pool}")
        answer = {"start": "Warm", "durations": DURATIONS}
        return TimedExecution(milliseconds=next(self.milliseconds), answer=answer, problem="")


class Floor:
    async def sample(self, name: str) -> float:
        return 1.0


@asynccontextmanager
async def open_floor(*_: Any, **__: Any) -> AsyncIterator[Floor]:
    yield Floor()


async def measure(
    monkeypatch: pytest.MonkeyPatch, token: str = "", other: str = ""
) -> tuple[latency.Figures, list[str]]:
    monkeypatch.setattr(latency, "open_floor", open_floor)
    release: Any = Release({"Authorization": "Bearer key"}, [], count(1))
    callers = await latency.list_callers(release, pool="default", token=token, other=other)
    figures = await latency.measure(release, callers, namespace="bench", peer="", rounds=2, concurrency=1)
    return figures, [each for each in release.order if each != "settled"]


async def test_a_token_takes_turns_with_the_key_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, order = await measure(monkeypatch, "person")
    assert order == ["Bearer key", "Bearer person", "Bearer person", "Bearer key"]
    assert figures["samples"]["total"] == [1, 4]
    assert figures["samples"]["by token"] == [2, 3]
    assert figures["summary"][latency.TOKEN_ROW]["p50"] == 2
    assert figures["ratio of the token to the key"] == 2


async def test_a_pool_of_another_language_takes_turns_with_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, order = await measure(monkeypatch, other="typescript")
    other = "console.log(1) in typescript"
    assert order == ["Bearer key", other, other, "Bearer key"]
    assert figures["samples"]["other"] == [2, 3]
    assert figures["more in the other pool, ms"] == figures["summary"][latency.OTHER_ROW]["p50"] - 1


async def test_without_a_token_there_are_the_figures_of_the_key_only(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, order = await measure(monkeypatch)
    assert order == ["Bearer key", "Bearer key"]
    assert latency.TOKEN_ROW not in figures["summary"]
    assert figures.keys() == {"summary", "ratio", "samples"}


def test_figures_of_both_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    runs = {
        name: [TimedExecution(milliseconds=ms, answer={"start": "Warm", "durations": DURATIONS}, problem="")]
        for name, ms in (("key", 20.0), ("token", 21.0))
    }
    figures = {"concurrency 1": latency.build_figures([10.0], runs)}
    latency.print_figures(figures, pool="default", place="here")
    printed = capsys.readouterr().out
    assert latency.TOKEN_ROW in printed
    assert "ratio of the token to the API key at p50: 1.05" in printed


def test_a_load_pod_gets_the_programs_that_this_one_imports() -> None:
    text = Path(latency.__file__).read_text()
    assert {"harness", "inside", "waits"} == {path.stem for path in latency.PROGRAMS} - {"latency"}
    assert all(f"from {name} import" in text for name in ("harness", "inside", "waits"))
