"""Bodies of commits and uploads, however they are cut and whatever they contain."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.files_store import entry_of, parts_of
from tests.support.fuzz import fuzz_settings

from mcp_exec_broker.features.files.artifacts import parse_artifact_head
from mcp_exec_broker.features.files.requests import ByteSource, FilesRefused
from mcp_exec_broker.features.files.workspace.manifest import index_files, parse_entry
from mcp_exec_common.broker.files import FilesReason
from mcp_exec_tools.workspace_files import MODES, check_path, is_digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(MODES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
GOOD = entry_of("a/b", b"x")._asdict()


@pytest.mark.fuzz
@fuzz_settings(200)
@given(
    st.dictionaries(st.sampled_from([*GOOD, "link"]), JSON, max_size=3).map(lambda changes: json.dumps(GOOD | changes))
    | st.text(max_size=40)
    | st.sampled_from(["[" * 8000, '{"path":' * 1000, '{"size":' + "9" * 5000 + "}", "NaN", '"\\ud800"'])
)
def test_a_line_of_a_commit_is_a_file_that_is_allowed_or_refused(line: str) -> None:
    try:
        entry = parse_entry(line.encode(errors="surrogatepass"))
    except FilesRefused:
        return
    check_path(entry.path)
    assert (type(entry.size), is_digest(entry.sha256), entry.mode in MODES) == (int, True, True)
    assert parse_entry(entry.to_line().encode()) == entry


@fuzz_settings(60)
@given(st.lists(st.sampled_from(["a", "a/b", "b", "a/b/c", "c"]), max_size=4))
def test_files_that_do_not_go_together_are_refused(paths: list[str]) -> None:
    is_whole = len(set(paths)) == len(paths) and not any(
        one != two and two.startswith(f"{one}/") for one in paths for two in paths
    )
    found: Any = None
    try:
        found = list(index_files(entry_of(path, b"x") for path in paths))
    except FilesRefused as error:
        found = error.reason
    assert found == (sorted(paths) if is_whole else FilesReason.INVALID)


@fuzz_settings(60)
@given(st.lists(st.binary(max_size=30), max_size=5), st.integers(1, 7))
def test_a_body_is_read_alike_however_it_is_cut(contents: list[bytes], size: int) -> None:
    body = b"".join(b"%d\n%b" % (len(content), content) for content in contents)

    async def read() -> list[bytes]:
        source, found = ByteSource(parts_of(body, size)), []
        while line := await source.read_line(4):
            found.append(b"".join([part async for part in source.iterate(int(line))]))
        return found

    assert asyncio.run(read()) == contents


async def test_a_line_without_an_end_takes_no_more_memory_than_its_limit() -> None:
    taken = 0

    async def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1000
            yield b"x" * 1000

    with pytest.raises(FilesRefused):
        await ByteSource(endless()).read_line(8000)
    assert taken <= 10_000


@pytest.mark.parametrize("line", [b"", b"[]", b"{" * 4000, b'{"name":"a"}', b"\xff"])
def test_a_malformed_head_of_an_artifact_is_refused(line: bytes) -> None:
    with pytest.raises(FilesRefused):
        parse_artifact_head(line)
