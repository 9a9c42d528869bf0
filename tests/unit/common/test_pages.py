import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fuzz import fuzz_settings

from mcp_exec_common.kube.pages import ObjectReader, PageSize, name_cells
from mcp_exec_common.util.weight import weigh

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.fuzz
@fuzz_settings(100)
@given(items=st.lists(VALUES, max_size=5), metadata=VALUES, indent=st.sampled_from([None, 1]))
def test_a_page_that_is_read_object_by_object_has_all_of_them(items: list[Any], metadata: Any, indent: int) -> None:
    page = {"kind": "List", "items": items, "metadata": metadata}
    reader = ObjectReader(json.dumps(page, indent=indent))
    assert list(reader) == items
    assert reader.rest == {"kind": "List", "metadata": metadata}


@pytest.mark.parametrize("page", ["", "[]", "{", '{"items": [1', '{"items": [1 2]}', '{"items" 1}', "nonsense"])
def test_a_page_that_is_no_object_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(ObjectReader(page))


def test_a_list_without_objects_is_empty() -> None:
    assert list(ObjectReader('{"items": null, "metadata": {}}')) == []


def test_cells_have_the_names_of_their_columns() -> None:
    row = name_cells(
        [{"name": "Name"}, {"name": "Phase"}], {"cells": ["a", None], "object": {"metadata": {"uid": "u"}}}
    )
    assert (row.metadata, row.cells) == ({"uid": "u"}, {"Name": "a", "Phase": None})


def test_pages_of_large_objects_become_small_and_pages_of_small_ones_large() -> None:
    pages = PageSize(maximum=500)
    pages.adapt(size=25 * 1_400_000, seconds=0.5)
    assert pages.objects == 1
    for _ in range(5):
        pages.adapt(size=pages.objects * 2_000, seconds=0.01)
    assert pages.objects == 500
    pages.adapt(size=1_000_000, seconds=10)
    assert pages.objects == 50


def test_a_page_that_is_too_large_is_requested_in_parts_unless_it_is_one_object() -> None:
    pages = PageSize(maximum=10)
    assert pages.shrink()
    assert pages.objects == 1
    assert not pages.shrink()


@pytest.mark.parametrize(
    ("value", "least"), [("x" * 1000, 1000), ([[]] * 1000, 56_000), ({str(n): 1 for n in range(1000)}, 50_000)]
)
def test_a_value_weighs_what_it_takes_in_memory(value: Any, least: int) -> None:
    assert least <= weigh(value, limit=10**9) <= 5 * least
    assert weigh(value, limit=100) > 100
