"""Runs one module of CPython's tests, and writes the outcome of each test as JSON. It runs in the sandbox's Python.

python3 inside.py test.test_asyncgen OUTCOMES
"""

import importlib
import json
import sys
import unittest
from typing import Any

_TEXT_CHARACTERS = 300


class Outcomes(unittest.TestResult):
    """The last outcome of each test and of its parts, by the test's name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.found[test.id()] = "ok"

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._note(test, err)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self._note(test, err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        # Names of parts have their values, which can be addresses.
        self.found[getattr(test, "test_case", test).id()] = "skipped"

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.found[test.id()] = "failed: it succeeded"

    def _note(self, test: Any, err: Any) -> None:
        self.found[test.id()] = f"failed: {err[0].__name__}: {str(err[1])[-_TEXT_CHARACTERS:]}"


def run(module: str, file: str) -> None:
    """Run the tests of a module."""
    from test import support

    # None would allow all: tests that use a network, much CPU or much memory are skipped.
    support.use_resources = []  # type: ignore[attr-defined]
    original = unittest.TestCase.run

    def run_case(test: unittest.TestCase, result: Any = None) -> Any:
        # A test that is interrupted does not end the others.
        try:
            return original(test, result)
        except KeyboardInterrupt:
            return result.addError(test, sys.exc_info())

    unittest.TestCase.run = run_case  # type: ignore[method-assign]
    outcomes = Outcomes()
    with open(file, "w") as output:
        try:
            suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
            suite.run(outcomes)
        except unittest.SkipTest:
            outcomes.found["module"] = "skipped"
        json.dump(outcomes.found, output)


if __name__ == "__main__":
    run(*sys.argv[1:])
