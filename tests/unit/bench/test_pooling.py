"""Choice of the tasks that bench/pooling.py runs."""

import argparse

import pooling
import pytest


def options(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"all": False, "example": None, "sequence": None, "number": 1} | given)


def test_a_sequence_names_tasks_by_their_begin_and_keeps_its_order() -> None:
    chosen = pooling.choose(options(sequence="03, 01,03"))
    assert chosen == ["03_data_filtering", "01_basic_tool_call", "03_data_filtering"]


def test_an_example_runs_as_often_as_asked() -> None:
    assert pooling.choose(options(example="workflow_p", number=2)) == ["workflow_plan_trip"] * 2


def test_all_are_all_tasks() -> None:
    assert len(pooling.choose(options(all=True))) == 15


@pytest.mark.parametrize("wrong", ["99", "", "01,,03"])
def test_a_name_of_no_task_is_refused_with_the_names_there_are(wrong: str) -> None:
    with pytest.raises(SystemExit, match=r"no task begins with .*; they are 01_basic_tool_call, 02_"):
        pooling.choose(options(sequence=wrong))
