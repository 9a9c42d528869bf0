"""kubectl's plugin for krew: its script and its manifest. `make installs` builds and runs a whole archive."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from hack.artifacts import plugin
from hack.artifacts.places import Places
from tests.support.pace import paced

PLACES = Places(registry="", downloads="https://downloads.example/mcp-exec", source="https://source.example", site="")
CLIENT = 'import sys\n\ndef kubectl_main():\n    print("plugin", *sys.argv[1:])\n'


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the link that krew makes, to an archive with a client that prints its arguments."""
    package = tmp_path / "lib/mcp_exec_client/cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "start.py").write_text(CLIENT)
    plugin.write_archive(tmp_path / "plugin.tar.gz", tmp_path / "lib", plugin.PYTHONS)
    with tarfile.open(tmp_path / "plugin.tar.gz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / plugin.NAME).symlink_to(f"../store/{plugin.NAME}")
    return tmp_path / "bin"


def run(
    folder: Path, *arguments: str, python: str = sys.executable, current: str | Path = "/"
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "MCP_EXEC_PYTHON": python}
    command = [str(folder / plugin.NAME), *arguments]
    return subprocess.run(
        command, env=environment, cwd=current, capture_output=True, text=True, timeout=paced(60), check=False
    )


def test_the_plugin_starts_by_krews_link_and_gets_its_arguments(installed: Path) -> None:
    assert run(installed, "get", "a b").stdout == "plugin get a b\n"


def test_the_current_folder_has_no_part_of_the_plugin(installed: Path, tmp_path: Path) -> None:
    for name in ("mcp_exec_client", "sys"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hijacked')\n")
    assert run(installed, "get", current=tmp_path).stdout == "plugin get\n"


def test_without_a_fit_python_the_plugin_says_what_it_needs(installed: Path) -> None:
    done = run(installed, python="/bin/false")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{plugin.NAME}: needs Python {plugin.PYTHONS[0]} to {plugin.PYTHONS[-1]} on PATH; "
        "$MCP_EXEC_PYTHON can name it\n"
    )


def test_equal_files_make_equal_archives(installed: Path, tmp_path: Path) -> None:
    plugin.write_archive(tmp_path / "again.tar.gz", tmp_path / "lib", plugin.PYTHONS)
    assert (tmp_path / "again.tar.gz").read_bytes() == (tmp_path / "plugin.tar.gz").read_bytes()


def test_the_manifest_has_an_archive_with_its_checksum_for_each_platform() -> None:
    sums = {f"{plugin.NAME}-1.2.3-{each.name}.tar.gz": each.name.encode().hex() for each in plugin.PLATFORMS}
    manifest = yaml.safe_load(plugin.build_manifest(PLACES, sums, version="1.2.3"))
    assert (manifest["kind"], manifest["metadata"]["name"], manifest["spec"]["version"]) == (
        "Plugin", "mcp-exec", "v1.2.3",
    )  # fmt: skip
    found = {
        "-".join(each["selector"]["matchLabels"].values()): (each["uri"], each["sha256"], each["bin"])
        for each in manifest["spec"]["platforms"]
    }
    address = f"{PLACES.downloads}/v1.2.3/{plugin.NAME}-1.2.3"
    assert found == {
        name: (f"{address}-{name}.tar.gz", name.encode().hex(), plugin.NAME)
        for name in ("linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64")
    }


def test_the_plugin_has_all_that_its_extra_requires_and_nothing_of_other_parts() -> None:
    found = set(re.findall(r"(?m)^([\w.-]+)==", plugin.find_requirements()))
    assert {"pydantic", "pydantic-core", "httpx", "kubernetes", "aiohttp", "pyyaml", "python-dotenv"} <= found
    assert not {"anthropic", "mcp", "kopf", "pytest", "uvicorn"} & found
    assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=\S)", plugin.find_requirements().strip()))
