"""What all tests share."""

import os

import pytest
import pytest_timeout
from hypothesis import settings

from tests.support.fuzz import FACTOR_VARIABLE

# Tests have a time limit as a whole: one example may be slow where the machine has much else to do.
settings.register_profile("unhurried", deadline=None)
# The same examples in each run: a change fails for what it changes. `make fuzz` searches for new ones.
settings.register_profile("repeatable", settings.get_profile("unhurried"), derandomize=True)
settings.load_profile("unhurried" if FACTOR_VARIABLE in os.environ else "repeatable")


_TIME_LIMIT = pytest.StashKey[pytest_timeout.Settings]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> None:
    """Keep the limit for a second run. The timer is pytest-timeout's."""
    item.stash[_TIME_LIMIT] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give the second run of a failed test a limit of its own. Both have one timer otherwise, which fires once."""
    if getattr(item, "execution_count", 1) > 1 and _TIME_LIMIT in item.stash:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[_TIME_LIMIT])
