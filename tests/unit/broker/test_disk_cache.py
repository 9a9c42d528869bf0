"""The disk cache of catalogs: its limits and its writes."""

from pathlib import Path
from typing import Any

from mcp_exec_broker.core.catalog.entry import CatalogCopy, CatalogDiskCache
from mcp_exec_broker.core.upstream.servers import ToolServer


def server(name: str, **spec: Any) -> ToolServer:
    meta = {"namespace": "agents", "name": name, "uid": f"u-{name}"}
    return ToolServer.from_object({"metadata": meta, "spec": {"url": "http://there/mcp"} | spec})


def copy(*, size: int = 0) -> CatalogCopy:
    tools = [{"name": "a", "description": "x" * size}]
    return CatalogCopy(protocol_version="2026-07-28", identity="there 1", is_public=False, tools=tools)


def test_what_is_too_large_is_not_kept_nor_what_was_before_it(tmp_path: Path) -> None:
    copies = CatalogDiskCache(tmp_path, max_bytes=1000)
    copies.put(server("one"), copy())
    copies.put(server("one"), copy(size=1000))
    assert copies.get(server("one")) is None
    assert list(tmp_path.iterdir()) == []


def test_all_copies_together_are_bounded(tmp_path: Path) -> None:
    CatalogDiskCache(tmp_path).put(server("one"), copy(size=600))
    copies = CatalogDiskCache(tmp_path, max_total_bytes=1000)
    copies.put(server("two"), copy(size=600))
    assert copies.get(server("two")) is None
    copies.put(server("one"), copy(size=700))
    assert copies.get(server("one")) is not None
    copies.retain([])
    copies.put(server("two"), copy(size=600))
    assert copies.get(server("two")) is not None


def test_a_list_that_says_the_same_is_not_written_again(tmp_path: Path) -> None:
    copies = CatalogDiskCache(tmp_path)
    copies.put(server("one"), copy())
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"a second write would replace this")
    copies.put(server("one"), copy())
    assert path.read_bytes().startswith(b"a second")
    copies.put(server("one"), copy(size=1))
    assert copies.get(server("one")) is not None
