"""Libraries of an image, read from the metadata of what is installed in its folders."""

import asyncio
from pathlib import Path

from mcp_exec_sandbox.supervisor.libraries import MAX_LIBRARIES, InstalledLibrary, read_libraries


def install(folder: Path, metadata: str, *files: str, top_level: str = "") -> None:
    (folder / metadata).mkdir()
    if files:
        (folder / metadata / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    if top_level:
        (folder / metadata / "top_level.txt").write_text(top_level)


def read(*folders: Path) -> list[InstalledLibrary]:
    return asyncio.run(read_libraries([str(folder) for folder in folders]))


def names(libraries: list[InstalledLibrary]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.name, each.version, each.imports) for each in libraries]


def test_a_library_is_listed_by_the_names_that_code_imports(tmp_path):
    install(
        tmp_path, "Pillow-11.3.0.dist-info", "PIL/Image.py", "PIL/_imaging.so", "pillow.libs/libz.so", "../bin/x.py"
    )
    install(
        tmp_path, "python_dateutil-2.9.0.post0.dist-info", "dateutil/__init__.py", "dateutil/tz.py", "dateutil/zz.py"
    )
    install(
        tmp_path, "six-1.17.0.dist-info", "six.py", "_six.cpython-313-x86_64-linux-gnu.so", "six-1.17.0.dist-info/x"
    )
    assert names(read(tmp_path)) == [
        ("python-dateutil", "2.9.0.post0", ("dateutil",)),
        ("pillow", "11.3.0", ("PIL",)),
        ("six", "1.17.0", ("six",)),
    ]


def test_packages_of_debian_have_no_list_of_files(tmp_path):
    install(tmp_path, "PyYAML-6.0.egg-info", top_level="_yaml\nyaml\n")
    install(tmp_path, "attrs-22.2.0-py3.11.egg-info")
    (tmp_path / "attrs.py").write_text("")
    assert names(read(tmp_path)) == [("attrs", "22.2.0", ("attrs",)), ("pyyaml", "6.0", ("yaml",))]


def test_what_nobody_can_import_is_left_out(tmp_path):
    install(tmp_path, "pandas_stubs-2.3.dist-info", "pandas-stubs/__init__.py")
    install(tmp_path, "tool-1.dist-info", "../../bin/tool")
    install(tmp_path, "empty-1.dist-info")
    assert read(tmp_path, tmp_path / "missing") == []


def test_the_first_folder_of_the_path_wins(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, version in ((first, "2.0"), (second, "1.0")):
        folder.mkdir()
        install(folder, f"numpy-{version}.dist-info", "numpy/__init__.py")
    assert names(read(first, second)) == [("numpy", "2.0", ("numpy",))]


def test_of_very_many_libraries_the_largest_are_listed(tmp_path):
    for number in range(MAX_LIBRARIES + 50):
        install(tmp_path, f"lib{number}-1.dist-info", *(f"lib{number}/m{each}.py" for each in range(1 + number % 7)))
    install(tmp_path, "large-1.dist-info", *(f"large/m{each}.py" for each in range(50)))
    found = read(tmp_path)
    assert len(found) == MAX_LIBRARIES
    assert found[0].name == "large"
    assert {each.modules for each in found[1:]} >= {6, 7}


def test_names_of_an_image_are_bounded_and_checked(tmp_path):
    install(tmp_path, "a" * 120 + "-1.dist-info", "a.py")
    install(tmp_path, "b-" + "1" * 80 + ".dist-info", "b.py")
    install(tmp_path, "c d-1.dist-info", "c.py")
    install(
        tmp_path, "e-1.dist-info", "e\u0301/x.py", "e f/x.py", "x" * 200 + "/a.py", *(f"e{n}.py" for n in range(20))
    )
    (tmp_path / "f-1.dist-info").mkdir()
    (tmp_path / "f-1.dist-info" / "RECORD").write_bytes(b"f/\xff.py,,\n" + b"x" * 100_000 + b"\n")
    found = {each.name: each.imports for each in read(tmp_path)}
    assert set(found) == {"e", "f"}
    assert len(found["e"]) == 8
    assert all(name.isascii() and name.isidentifier() for name in found["e"])
