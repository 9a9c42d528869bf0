"""Limits of a unit test: it runs in one process, and sees none of the developer's settings."""

from collections.abc import Iterator

import pytest
from tests.support.environment import no_cache_named
from tests.support.no_processes import ProcessGuard

__all__ = ["no_cache_named"]

GUARD = ProcessGuard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Refuse new processes while fixtures are set up."""
    with GUARD.refuse():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Refuse new processes while the test runs."""
    with GUARD.refuse():
        return (yield)
