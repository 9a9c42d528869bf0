"""CPython's tests as the judge: what counts as a difference, and where its reason stands."""

import pytest
from hack.cpython.known import DIFFERENCES, LEFT_OUT, MODULES, find_problems
from hack.python_values.__main__ import build_page

KNOWN = "test_sys.SysModuleTest.test_setrecursionlimit_to_depth"
CODECS = [name for difference in DIFFERENCES for name in difference.tests if name.startswith("test_sys.")]
ALIKE = {f"test.{name}": "ok" for name in CODECS}
EXPECTED = {**{f"test.{name}": "skipped" for name in CODECS}, f"test.{KNOWN}": "failed: UnboundLocalError: x"}


def test_the_known_differences_are_no_problem() -> None:
    assert find_problems("test_sys", EXPECTED, ALIKE) == []


@pytest.mark.parametrize(
    ("inside", "child", "problem"),
    [
        (
            {"test.test_sys.A.b": "failed: X: y"},
            {"test.test_sys.A.b": "ok"},
            "in a run failed: X: y; in a child process ok",
        ),
        ({}, {"test.test_sys.A.b": "ok"}, "in a run missing; in a child process ok"),
        ({"test.test_sys.A.b": "skipped"}, {"test.test_sys.A.b": "ok"}, "in a run skipped; in a child process ok"),
    ],
)
def test_a_difference_without_a_reason_is_a_problem(
    inside: dict[str, str], child: dict[str, str], problem: str
) -> None:
    assert find_problems("test_sys", EXPECTED | inside, ALIKE | child) == [f"test_sys.A.b: {problem}"]


def test_a_test_that_fails_in_both_is_alike_whatever_its_error_says() -> None:
    both = ({"test.test_sys.A.b": "failed: X: 1"}, {"test.test_sys.A.b": "failed: X: 2"})
    assert find_problems("test_sys", EXPECTED | both[0], ALIKE | both[1]) == []


def test_a_reason_without_a_difference_is_a_problem() -> None:
    alike = find_problems("test_sys", EXPECTED | {f"test.{KNOWN}": "ok"}, ALIKE)
    assert alike == [f"{KNOWN}: ends alike (ok), so it is no known difference"]
    gone = {name: outcome for name, outcome in EXPECTED.items() if name != f"test.{KNOWN}"}
    assert find_problems("test_sys", gone, dict.fromkeys(gone, "ok")) == [f"{KNOWN}: there is no such test"]


PDB = {"test.test_pdb.test_pdb_issue_20766": "failed: AssertionError: x"}


def test_tests_of_a_class_that_a_run_skips_for_one_reason_are_no_problem_and_others_of_it_are() -> None:
    inside = {"test.test_pdb.PdbTestCase.test_a": "skipped", "test.test_pdb.PdbTestCase.test_b": "ok"}
    child = dict.fromkeys([*inside, *PDB], "ok")
    assert find_problems("test_pdb", inside | PDB, child) == []
    inside["test.test_pdb.PdbTestCase.test_b"] = "failed: X: y"
    text = "test_pdb.PdbTestCase.test_b: in a run failed: X: y; in a child process ok"
    assert find_problems("test_pdb", inside | PDB, child) == [text]
    inside = dict.fromkeys(inside, "ok")
    text = "test_pdb.PdbTestCase: no test of it is skipped in a run only"
    assert find_problems("test_pdb", inside | PDB, child) == [text]


def test_each_known_test_is_of_a_module_that_is_compared_and_has_its_reason_on_the_page_of_values() -> None:
    page = " ".join(build_page().split())
    for difference in DIFFERENCES:
        assert " ".join(difference.reason.split()) in page
        assert all(
            any(name.startswith(f"{module}.") for module in MODULES)
            for name in (*difference.tests, *difference.skipped)
        )


def test_no_module_is_compared_that_can_run_in_no_sandbox() -> None:
    left_out = [module for modules in LEFT_OUT.values() for module in modules]
    assert not set(MODULES) & set(left_out)
    assert list(MODULES) == sorted(set(MODULES))
