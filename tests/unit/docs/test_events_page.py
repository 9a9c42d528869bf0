"""docs/services/http-api.md: its table of events has the fields of the models."""

import re
from typing import get_args

from tests.support.pages import DOCS

from mcp_exec_api.wire.events import STREAM_EVENTS, StreamEvent

SECTION = (DOCS / "services/http-api.md").read_text().partition("\n## Events\n")[2].partition("\n## ")[0]
ROWS = {
    tuple(re.findall(r"`(\w+)`", types)): re.findall(r"\(?`\w+`\)?", fields)
    for types, fields in re.findall(r"^\| (`.*?) \| (`.*?) \|", SECTION, re.MULTILINE)
}


def describe(model: type[StreamEvent]) -> tuple[tuple[str, ...], list[str]]:
    """Return the row of a model: its types, and its own fields, in parentheses if they may be absent."""
    fields = {name: field for name, field in model.model_fields.items() if name not in StreamEvent.model_fields}
    types = get_args(fields.pop("type").annotation)
    return types, [f"`{field.alias}`" if field.is_required() else f"(`{field.alias}`)" for field in fields.values()]


def test_the_page_lists_every_event_with_the_fields_of_its_model() -> None:
    assert dict(map(describe, STREAM_EVENTS)) == ROWS
    assert {f"`{field.alias}`" for field in StreamEvent.model_fields.values()} <= set(re.findall(r"`\w+`", SECTION))
