"""The status of a ToolServer."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.tool_server import ToolServerStatus
from mcp_exec_broker.core.catalog.entry import CatalogEntry
from mcp_exec_broker.core.catalog.resources import build_patch, build_status
from mcp_exec_broker.core.upstream.servers import ToolServer

MOMENT = datetime(2026, 11, 22, tzinfo=UTC)


def server(**status: Any) -> ToolServer:
    item = {"metadata": {"namespace": "a", "name": "s", "generation": 3}, "spec": {"url": "http://s"}, "status": status}
    return ToolServer.from_object(item)


def entry(**changes: Any) -> CatalogEntry:
    return CatalogEntry(**({"available": True, "generation": 3, "listed_at": MOMENT} | changes))


def merged(stored: Any, patch: Any) -> Any:
    """Apply a merge patch as the API server does."""
    if not isinstance(patch, dict):
        return patch
    found = dict(stored) if isinstance(stored, dict) else {}
    for name, value in patch.items():
        found.pop(name, None) if value is None else found.update({name: merged(found.get(name), value)})
    return found


def test_a_status_has_no_empty_texts_and_is_what_the_type_says() -> None:
    for each in (entry(), entry(available=False, reason="Unreachable", message="no", listed_at=None)):
        found = build_status(server(), each, {}, moment=MOMENT)
        ToolServerStatus.model_validate(found)
        assert "" not in found.values()
        assert "" not in [value for condition in found["conditions"] for value in condition.values()]


def test_only_what_differs_is_written_and_what_is_gone_is_removed() -> None:
    failed = build_status(server(), entry(available=False, reason="Unreachable", message="no"), {}, moment=MOMENT)
    good = build_status(server(**failed), entry(), {}, moment=MOMENT)
    patch = build_patch(failed, good, refresh_seconds=300)
    assert patch is not None
    assert (patch["available"], patch["reason"], patch["message"]) == (True, None, None)
    assert merged(failed, patch) == good
    assert build_patch(good, good, refresh_seconds=300) is None


def test_a_new_time_alone_is_written_seldom() -> None:
    first = build_status(server(), entry(), {}, moment=MOMENT)
    for seconds, written in ((10, False), (200, True)):
        later = build_status(server(**first), entry(listed_at=MOMENT + timedelta(seconds=seconds)), {}, moment=MOMENT)
        assert bool(build_patch(first, later, refresh_seconds=300)) is written


JSON = st.recursive(st.integers() | st.text(max_size=4), lambda each: st.dictionaries(st.text(max_size=3), each))


@given(st.dictionaries(st.text(max_size=3), JSON, min_size=1), st.dictionaries(st.text(max_size=3), JSON, min_size=1))
def test_schemas_that_change_are_stored_as_they_are(old: dict[str, Any], new: dict[str, Any]) -> None:
    stored = build_status(server(), entry(), old, moment=MOMENT)
    found = build_status(server(**stored), entry(), new, moment=MOMENT)
    patch = build_patch(stored, found, refresh_seconds=300)
    assert (merged(stored, patch) if patch else stored) == found
