"""Folders of skills as archives: a round trip changes nothing, and a hostile archive is refused."""

import io
import tarfile
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fuzz import fuzz_settings

from mcp_exec_api.skill import MAX_ARCHIVE_BYTES
from mcp_exec_common.skills.folder import SkillFolder, build_archive, read_archive
from mcp_exec_common.skills.interface import InvalidSkill

FOLDER = SkillFolder(
    name="report",
    description='Say "x" \\ and: y #z.',
    code="def run(): ...\n",
    instructions="\n# Report\n\n---\n",
    tools=["github.list_issues", "files.*"],
    tags=["sql", "two words"],
)
SKILL = b"---\nname: report\ndescription: d\n---\nbody"


def make_archive(*members: tuple[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda _: None) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            change(member)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def test_an_archive_of_a_folder_is_the_folder() -> None:
    assert read_archive(build_archive(FOLDER, version=3)) == FOLDER
    assert build_archive(FOLDER, version=3) == build_archive(FOLDER, version=3)


@pytest.mark.parametrize("top", ["", "./", "any-folder/", "./any/"])
def test_the_files_are_at_the_top_or_in_one_folder(top: str) -> None:
    archive = make_archive((f"{top}SKILL.md", SKILL), (f"{top}scripts/run.py", b"def run(): ..."))
    assert read_archive(archive).name == "report"


@pytest.mark.parametrize(
    "name",
    ["../SKILL.md", "/etc/passwd", "a/b/SKILL.md", "a/../SKILL.md", "x/evil.py", "SKILL.md/..", "a//SKILL.md", ""],
)
def test_a_member_of_any_other_path_is_refused(name: str) -> None:
    with pytest.raises(InvalidSkill, match="not allowed"):
        read_archive(make_archive((name, SKILL)))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(kind: bytes) -> None:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = kind, "/etc/passwd", 0

    with pytest.raises(InvalidSkill, match="not allowed"):
        read_archive(make_archive(("SKILL.md", b""), change=change))


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        (b"", "no tar archive|no file"),
        (b"\x1f\x8b" + b"\0" * 600, "no tar archive"),
        (b"\0" * (MAX_ARCHIVE_BYTES + 1), "at most"),
        (make_archive(("SKILL.md", SKILL)), "scripts/run.py"),
        (make_archive(("SKILL.md", SKILL), ("SKILL.md", SKILL)), "twice"),
        (make_archive(("SKILL.md", b"\xff")), "UTF-8"),
        (make_archive(("scripts/run.py", b"x" * 300_000)), "at most"),
    ],
)
def test_an_archive_that_is_no_folder_of_a_skill_is_refused_with_the_reason(archive: bytes, problem: str) -> None:
    with pytest.raises(InvalidSkill, match=problem):
        read_archive(archive)


def test_an_archive_of_many_members_is_refused() -> None:
    def change(member: tarfile.TarInfo) -> None:
        member.type = tarfile.DIRTYPE

    with pytest.raises(InvalidSkill, match="more than 16"):
        read_archive(make_archive(*((f"d{number}", b"") for number in range(40)), change=change))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: x", "must begin"),
        ("---\nname: x\n", "no second line"),
        ("---\n- a\n---\n", "key: value"),
        ("---\nname: x\nname: y\n---\n", "twice"),
        ("---\nsecret: x\n---\n", "unknown key"),
    ],
)
def test_bad_front_matter_is_refused_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(InvalidSkill, match=problem):
        SkillFolder.from_files({"SKILL.md": text, "scripts/run.py": ""})


def test_folded_and_quoted_values_are_read() -> None:
    text = "---\nname: 'x'\ndescription: >\n  one\n  two\nmetadata:\n  tags: a, b\n---\n"
    folder = SkillFolder.from_files({"SKILL.md": text, "scripts/run.py": ""})
    assert (folder.name, folder.description, folder.tags) == ("x", "one two", ["a", "b"])


@given(st.binary(max_size=2000))
@fuzz_settings(60)
def test_no_archive_makes_it_fail_otherwise(data: bytes) -> None:
    whole = bytearray(build_archive(FOLDER, version=1))
    whole[: len(data)] = data
    for archive in (data, bytes(whole), bytes(whole[512:]) + data):
        try:
            read_archive(archive)
        except InvalidSkill:
            continue
