"""Archives from strangers."""

import asyncio
import io
import tarfile
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.files_store import SPACE, FilesWorld, parts_of
from tests.support.fuzz import fuzz_settings

from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.workspace.tar import read_tar, write_tar
from mcp_exec_common.broker.files import FilesReason
from mcp_exec_tools.workspace_files import check_path

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
Entry = tuple[str, bytes, dict[str, Any]]


def make(*entries: Entry, format: int = tarfile.PAX_FORMAT, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format, **options) as archive:
        for name, data, fields in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


async def list_files(archive: bytes, *, part_bytes: int = 700, max_files: int = 100) -> dict[str, tuple[bytes, int]]:
    """Return content and mode of the files in an archive, by path."""
    found = {}
    async for file in read_tar(parts_of(archive, part_bytes), max_files=max_files):
        content = b"".join([part async for part in file.parts])
        assert len(content) == file.size
        found[file.path] = content, file.mode
    return found


FILE: Entry = ("a", b"content", {})
LONG = "folder/" * 20 + "x" * 90


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("part_bytes", [1, 511, 10_000])
async def test_archives_of_each_format_are_read(format: int, part_bytes: int) -> None:
    archive = make(
        ("./", b"", {"type": tarfile.DIRTYPE}),
        ("./folder/", b"", {"type": tarfile.DIRTYPE}),
        ("./folder/plain", b"x" * 1025, {"mode": 0o600}),
        ("folder/run", b"#!", {"mode": 0o4755, "uid": 1000, "uname": "root"}),
        ("ü" * 40, b"", {}),
        *([(LONG, b"long", {})] if format != tarfile.USTAR_FORMAT else []),
        format=format,
    )
    expected = {"folder/plain": (b"x" * 1025, 0o644), "folder/run": (b"#!", 0o755), "ü" * 40: (b"", 0o644)}
    if format != tarfile.USTAR_FORMAT:
        expected[LONG] = b"long", 0o644
    assert await list_files(archive, part_bytes=part_bytes) == expected


def patch(archive: bytes, start: int, data: bytes) -> bytes:
    """Return an archive with other bytes in its first header, and its checksum."""
    header = bytearray(archive[:512])
    header[start : start + len(data)] = data
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + archive[512:]


PLAIN = make(FILE, format=tarfile.USTAR_FORMAT)
HOSTILE: dict[str, bytes] = {
    "a path out of the workspace": make(("../a", b"x", {})),
    "a path out of the workspace by a folder": make(("a/../../b", b"", {"type": tarfile.DIRTYPE})),
    "an absolute path": make(("/etc/passwd", b"x", {}), format=tarfile.GNU_FORMAT),
    "a path with a line break": make(("a\nb", b"x", {})),
    "a path with a zero in a pax header": make(("a", b"x", {"pax_headers": {"path": "a\0b"}})),
    "a path with a backslash": make(("a\\..\\b", b"x", {})),
    "a path that is no UTF-8": patch(PLAIN, 0, b"\xff\xfe"),
    "a path of surrogates": make(("a\udc80", b"x", {}), errors="surrogateescape", format=tarfile.GNU_FORMAT),
    "a path that is too long": make(("a/" * 600 + "b", b"x", {})),
    "a path that is empty": patch(PLAIN, 0, b"\0"),
    "a file with the name of a folder": make(("a/", b"x", {})),
    "a folder with content": patch(PLAIN, 156, b"5"),
    "a symbolic link": make(("a", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})),
    "a hard link": make(FILE, ("b", b"", {"type": tarfile.LNKTYPE, "linkname": "a"})),
    "a character device": make(("a", b"", {"type": tarfile.CHRTYPE})),
    "a block device": make(("a", b"", {"type": tarfile.BLKTYPE})),
    "a pipe": make(("a", b"", {"type": tarfile.FIFOTYPE})),
    "a sparse file of GNU": make(("a", b"", {"type": tarfile.GNUTYPE_SPARSE})),
    "a sparse file of pax": make(("a", b"x", {"pax_headers": {"GNU.sparse.major": "1", "GNU.sparse.realsize": "9"}})),
    "a link in a pax header": make(("a", b"x", {"pax_headers": {"linkpath": "/etc/passwd"}})),
    "another character set": make(("a", b"x", {"pax_headers": {"hdrcharset": "BINARY"}})),
    "a pax header that is a bomb": make(("a", b"x", {"pax_headers": {"comment": "x" * 20_000}})),
    "a pax header for all files": make(FILE, pax_headers={"path": "b"}),
    "a pax header with a wrong length": make(("a" * 200, b"x", {})).replace(b"210 path=", b"999 path="),
    "a pax header with a size that is no number": make(("a", b"x", {"pax_headers": {"size": "-1"}})),
    "a size beyond all bounds": make(("a", b"x", {"pax_headers": {"size": "9" * 30}})),
    "a negative binary size": patch(PLAIN, 124, b"\xff" * 12),
    "a huge binary size": patch(PLAIN, 124, b"\x80" + b"\xff" * 11),
    "a size that is no number": patch(PLAIN, 124, b"12x45678901\0"),
    "a type that nobody knows": patch(PLAIN, 156, b"Z"),
    "a wrong checksum": PLAIN[:10] + b"x" + PLAIN[11:],
    "too many headers of one file": make(*[("x" * 150, b"", {})])[:1024] * 9 + PLAIN,
    "too many files": make(*((f"f{number}", b"", {}) for number in range(101))),
    "too many folders": make(*((f"f{number}", b"", {"type": tarfile.DIRTYPE}) for number in range(500))),
    "an end within a file": PLAIN[:515],
    "an end within a header": PLAIN[:300],
    "no end": PLAIN[:1024],
    "no archive": b"hello" * 200,
    "nothing": b"",
    "something after the end": PLAIN + b"x",
    "another archive after the end": PLAIN + PLAIN,
    "a compressed archive": b"\x1f\x8b" + bytes(600),
    "a zip file": b"PK\x03\x04" + bytes(600),
    "endless zeros": PLAIN + bytes(2 * 1024 * 1024),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_an_archive_with_anything_but_files_and_folders_is_refused(name: str) -> None:
    with pytest.raises(FilesRefused) as caught:
        await list_files(HOSTILE[name])
    assert caught.value.reason in (FilesReason.INVALID, FilesReason.TOO_LARGE)
    assert len(str(caught.value)) < 500


SEEDS = [*HOSTILE.values(), *(make(FILE, (LONG, b"long" * 300, {}), format=format) for format in FORMATS[1:])]


@pytest.mark.fuzz
@fuzz_settings(300)
@given(st.sampled_from(SEEDS), st.data())
def test_whatever_an_archive_contains_it_is_read_or_refused(seed: bytes, data: st.DataObject) -> None:
    archive = bytearray(seed[:4096])
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(archive)))
        archive[start : start + data.draw(st.integers(0, 12))] = data.draw(st.binary(max_size=12))
    repaired = patch(bytes(archive), 0, b"") if len(archive) >= 512 and data.draw(st.booleans()) else bytes(archive)
    found = {}
    refusal = FilesReason.INVALID
    try:
        found = asyncio.run(list_files(repaired, part_bytes=data.draw(st.sampled_from([1, 512, 5000]))))
    except FilesRefused as error:
        refusal = error.reason
    assert refusal in (FilesReason.INVALID, FilesReason.TOO_LARGE)
    for path, (content, _) in found.items():
        check_path(path)
        assert len(content) <= len(repaired)


@fuzz_settings(60)
@given(
    st.dictionaries(
        st.text("abü.é/ \u65e5", min_size=1, max_size=150),
        st.binary(max_size=700) | st.just(b"same") | st.just(b"L" * 300_000),
        max_size=6,
    )
)
@example({"a": b"L" * 300_000, "b": b"L" * 300_000, "c": b"", "d": b"same", "e": b"same"})
def test_an_archive_of_a_version_is_read_as_the_same_files(files: dict[str, bytes]) -> None:
    async def run() -> None:
        world = FilesWorld()
        state = await world.store.states.open(SPACE, "data")
        try:
            await world.commit(state, {path: content for path, content in files.items() if is_allowed(path)}, base=0)
        except FilesRefused:  # a path is file and folder
            return
        manifest = await world.store.workspaces.read(SPACE, state)
        parts = write_tar(manifest, world.store.workspaces.open_reader(SPACE, state))
        archive = b"".join([part async for part in parts])
        expected = await world.read(state)
        assert {path: content for path, (content, _) in (await list_files(archive)).items()} == expected
        with tarfile.open(fileobj=io.BytesIO(archive)) as others:  # as other tools read it
            assert {member.name for member in others} == expected.keys()

    asyncio.run(run())


def is_allowed(path: str) -> bool:
    try:
        check_path(path)
    except ValueError:
        return False
    return True
