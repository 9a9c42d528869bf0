"""What all tests share."""

import gc
import os
from pathlib import Path

import pytest
import pytest_timeout
from hypothesis import settings

from tests.support.fuzz import FACTOR_VARIABLE
from tests.support.pace import paced

# Tests have a time limit as a whole: one example may be slow where the machine has much else to do.
settings.register_profile("unhurried", deadline=None)
# The same examples in each run: a change fails for what it changes. `make fuzz` searches for new ones.
settings.register_profile("repeatable", settings.get_profile("unhurried"), derandomize=True, max_examples=50)
settings.load_profile("unhurried" if FACTOR_VARIABLE in os.environ else "repeatable")


# Modules and items of thousands of tests stay to the end: without this, each full garbage collection would visit them.
gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was collected."""
    gc.collect()
    gc.freeze()
    gc.enable()


_TIME_LIMIT = pytest.StashKey[pytest_timeout.Settings]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> object:
    """Set a timer that fits the machine, and keep the limit for a second run."""
    item.stash[_TIME_LIMIT] = settings
    limit = settings.timeout and paced(settings.timeout)
    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=limit))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give the second run of a failed test a limit of its own. Both have one timer otherwise, which fires once."""
    if getattr(item, "execution_count", 1) > 1 and _TIME_LIMIT in item.stash:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[_TIME_LIMIT])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add the tests that ran again to the file that RERUNS_FILE names. A worker reports to its controller."""
    reruns = {report.nodeid for report in terminalreporter.getreports("rerun")}
    if reruns and "RERUNS_FILE" in os.environ and not hasattr(terminalreporter.config, "workerinput"):
        with Path(os.environ["RERUNS_FILE"]).open("a") as file:
            file.writelines(f"{name}\n" for name in sorted(reruns))
