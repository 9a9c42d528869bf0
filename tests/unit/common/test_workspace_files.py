"""Paths and frames of workspaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_sandbox.protocol import ARTIFACTS_FOLDER, SERVERS_FOLDER
from mcp_exec_sandbox.supervisor.wrapper_store import HIDDEN_FOLDER
from mcp_exec_tools.workspace_files import (
    MAX_FRAME_HEAD,
    RESERVED,
    build_frame_head,
    check_path,
    check_paths,
    parse_frame_head,
)

HOSTILE_PATHS = (
    *("", "/etc/passwd", "//a", "a//b", "a/", "./a", "a/.", "..", "../a", "a/../b", "a\\b", "..\\a", "C:\\a"),
    *("a\0b", "a\nb", "a\rb", "a\x1b[2J", "a\x7f", "a\x85", "\ud800", "a\u2028b", "abc\u202etxt.exe", "a\u200fb"),
    *("x" * 256, "é" * 128, "x/" * 600 + "x", "d/" * 32 + "f"),
)


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_path_that_could_mislead_a_file_system_or_a_reader_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        check_path(path)


@pytest.mark.parametrize(
    "path", ["a", "a/b.txt", ".hidden", "...", "-rf", " ", "Ärger/日本.csv", "d/" * 31 + "f", "x" * 255]
)
def test_an_ordinary_path_is_allowed(path: str) -> None:
    check_path(path)


@given(st.text(st.characters(codec=None), max_size=40) | st.text("./\\a\0é", max_size=12))
def test_an_allowed_path_stays_below_its_folder_whoever_reads_it(path: str) -> None:
    try:
        check_path(path)
    except ValueError:
        return
    assert path.encode().decode() == path
    assert not {"", ".", ".."} & set(path.split("/"))
    assert path.isprintable() or all(ord(character) > 0x9F for character in path if not character.isprintable())


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "a/b"], ["a/b/c", "x", "a/b"], ["a/b", "a"]])
def test_a_path_that_is_there_twice_or_both_file_and_folder_is_refused(paths: list[str]) -> None:
    with pytest.raises(ValueError, match="path"):
        check_paths(paths)


def test_files_of_one_folder_and_of_similar_names_go_together() -> None:
    check_paths(["a", "ab", "b/a", "b/ab", "a.b", "c/d/e", "c/d/f"])


@given(st.integers(0, 2**53))
def test_the_head_of_a_frame_is_read_as_it_was_written(size: int) -> None:
    head = build_frame_head("0a" * 32, size)
    assert len(head) <= MAX_FRAME_HEAD
    assert parse_frame_head(head) == ("0a" * 32, size)


@given(st.binary(max_size=100) | st.from_regex(rb"[0-9a-fA-F]{63,65} [+-]?[0-9_]{0,20}\n?\n?", fullmatch=True))
def test_every_other_head_of_a_frame_is_refused(line: bytes) -> None:
    try:
        sha256, size = parse_frame_head(line)
    except ValueError:
        return
    assert build_frame_head(sha256, size) == line


def test_the_reserved_names_are_the_folders_of_the_sandbox() -> None:
    assert {SERVERS_FOLDER, ARTIFACTS_FOLDER, HIDDEN_FOLDER} == RESERVED
