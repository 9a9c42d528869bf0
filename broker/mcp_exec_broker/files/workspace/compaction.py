"""Moves contents out of packs that versions hardly use any more, so that the collector can remove these."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mcp_exec_broker.files.workspace.manifest import Location, Manifest
from mcp_exec_broker.files.workspace.packs import PackReader, PackWriter

MOVED_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that one commit moves."""
_MOVED_PACKS: Final = 32
"""Most packs that one commit moves contents from."""
_MANY_PACKS: Final = 32
"""Packs of a version above which small ones are joined."""


async def compact(manifest: Manifest, reader: PackReader, writer: PackWriter) -> Manifest:
    """Return the manifest with contents in new packs, or itself if nothing is to be moved. Raises FilesRefused."""
    sizes = {item.key.rpartition("/")[2]: item.size async for item in reader.storage.list_objects(reader.folder)}
    packs = choose_packs(manifest.summary.packs, sizes)
    moved = {sha256: location for sha256, location in manifest.contents.items() if location.pack in packs}
    if not moved:
        return manifest
    async with writer:
        async for sha256, location, stream in reader.read(moved):
            await writer.add(sha256, location.size, stream.iterate(location.size))
    contents = {**manifest.contents, **writer.stored}
    return replace(manifest, contents=contents, summary=replace(manifest.summary, packs=count_bytes(contents)))


def choose_packs(used: Mapping[str, int], sizes: Mapping[str, int]) -> set[str]:
    """Return the packs whose contents should be moved: those with much waste, and small ones if there are many."""
    chosen: set[str] = set()
    moved = 0
    surplus = len(used) - _MANY_PACKS
    for pack, live in sorted(used.items(), key=lambda item: item[1]):
        if moved + live > MOVED_BYTES or len(chosen) >= _MOVED_PACKS:
            break
        if live * 2 < sizes.get(pack, 0) or len(chosen) <= surplus:
            chosen.add(pack)
            moved += live
    return chosen if len(chosen) > 1 or any(used[pack] * 2 < sizes.get(pack, 0) for pack in chosen) else set()


def count_bytes(contents: Mapping[str, Location]) -> dict[str, int]:
    """Return the bytes of contents in each pack."""
    packs: dict[str, int] = {}
    for location in contents.values():
        packs[location.pack] = packs.get(location.pack, 0) + location.size
    return packs
