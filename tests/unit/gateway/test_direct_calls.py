"""Answers of the broker to direct calls: weighed before they are parsed."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mcp_exec_common.broker.direct_calls import DirectCallClient
from mcp_exec_gateway.core.http.limits import MemoryBudget
from mcp_exec_gateway.features.tools.catalogs import ExportedTool
from mcp_exec_gateway.features.tools.direct import DirectAccess, call_tool

MIB = 1024 * 1024


class Answering:
    """A client whose broker answers with one line."""

    def __init__(self, line: bytes) -> None:
        self.line = line

    async def call(self, grant: object, body: bytes, *, limit: int, reserve: Any) -> bytes:
        reserve(len(self.line))
        return self.line


async def call(line: bytes, budget: MemoryBudget) -> tuple[dict[str, Any], int]:
    """Return the answer to a call, and the memory that was reserved for it."""
    access = cast(DirectAccess, SimpleNamespace(build_grant=lambda approved: None))
    tool = cast(ExportedTool, SimpleNamespace(path="box.big"))
    with budget.reserving("agents") as memory:
        answer = await call_tool(cast(DirectCallClient, Answering(line)), access, tool, {}, memory=memory)
        return answer, memory.size


@pytest.mark.parametrize(
    ("value", "least"),
    [(b'"%b"' % (b"x" * MIB), 2 * MIB), (b"[%b0]" % (b"[]," * 10_000), 2 * 2 * 64 * 10_000)],
    ids=["text", "lists"],
)
async def test_memory_of_the_values_of_an_answer_is_reserved(value: bytes, least: int) -> None:
    answer, size = await call(b'{"type":"result","result":{"content":[],"a":%b}}' % value, MemoryBudget())
    assert answer["type"] == "result"
    assert least <= size < 2 * least


async def test_an_answer_whose_values_do_not_fit_is_not_parsed() -> None:
    line = b'{"type":"result","result":{"content":[],"structuredContent":[%b0]}}' % (b"[]," * 1_000_000)
    budget = MemoryBudget()
    answer, _ = await call(line, budget)
    assert (answer["type"], answer["reason"]) == ("error", "ResultTooLarge")
    assert "does not fit this replica" in answer["message"]
    assert budget.used == 0
