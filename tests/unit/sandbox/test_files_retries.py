"""Transfers of files while the broker restarts, refuses, or stays away."""

from collections.abc import Callable

import pytest

from mcp_exec_sandbox.supervisor.files.connection import (
    RETRY_SECONDS,
    Deadline,
    OutOfTime,
    TransferBroken,
    TransferFailed,
    TransferRefused,
    repeat,
)


class Waited(Deadline):
    """A deadline whose time passes when somebody waits."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        super().__init__(seconds, clock=lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += min(seconds, self.check())
        self.check()


def failing(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


def test_a_broker_that_comes_back_has_all_that_was_asked() -> None:
    deadline = Waited(60)
    errors = (TransferBroken("refused"), TransferRefused(503, "", "Unavailable"), TransferRefused(429, "", "Busy"))
    assert repeat(failing(*errors), deadline) == "done"
    assert deadline.now == sum(RETRY_SECONDS[:3])


def test_a_broker_that_stays_away_costs_a_bounded_time() -> None:
    deadline = Waited(60)
    with pytest.raises(TransferBroken):
        repeat(failing(*[TransferBroken("refused")] * 50), deadline)
    assert deadline.now == sum(RETRY_SECONDS) < 25


@pytest.mark.parametrize("error", [TransferFailed("no JSON"), TransferRefused(409, "", "Conflict"), OSError()])
def test_what_another_attempt_would_meet_again_ends_the_transfer_at_once(error: Exception) -> None:
    deadline = Waited(60)
    with pytest.raises(type(error)):
        repeat(failing(error), deadline)
    assert deadline.now == 0


def test_the_end_of_the_time_or_of_the_run_ends_the_wait() -> None:
    with pytest.raises(OutOfTime, match="longer than 2 s"):
        repeat(failing(*[TransferBroken("refused")] * 50), Waited(2))
    deadline = Deadline(60)
    deadline.cancel()
    with pytest.raises(OutOfTime, match="cancelled"):
        deadline.wait(60)
