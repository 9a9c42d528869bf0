"""`pip install` of the built wheels with each extra into an empty environment: `make installs`. It needs an index."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hack.artifacts import plugin
from tests.support.installs import CHECKS, ROOT, build_wheel, check, create_environment, locked_versions, run
from tests.support.pace import paced


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("extra", CHECKS)
def test_pip_installs_the_wheel_with_an_extra_and_it_works(wheel: Path, extra: str, tmp_path: Path) -> None:
    python = create_environment(tmp_path / "environment")
    (tmp_path / "constraints.txt").write_text(locked_versions())
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "-c", "constraints.txt"]
    subprocess.run([*command, requirement], cwd=tmp_path, check=True, timeout=paced(500))
    check(python, extra)
    assert (
        "usage: mcp-exec"
        in subprocess.run(
            [python.parent / "mcp-exec", "--help"], capture_output=True, text=True, check=True, timeout=paced(60)
        ).stdout
    )
    assert run(python, "-c", "import mcp_exec_client; print(mcp_exec_client.__file__)").startswith(str(tmp_path))


@pytest.mark.timeout(600)
def test_wheels_are_built_by_a_python_that_has_nothing_but_pip(tmp_path: Path) -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30).stdout
    for name in filter(None, names.decode().split("\0")):
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / "checkout" / name, follow_symlinks=False)
    environment = {**os.environ, "PYTHON": str(create_environment(tmp_path / "environment")), "VENV": "/nonexistent"}
    command = [tmp_path / "checkout/hack/wheels", tmp_path / "built"]
    subprocess.run(command, env=environment, check=True, timeout=paced(500))
    assert len(list((tmp_path / "built").glob("mcp_exec*.whl"))) == 2


USER = """
from mcp_exec_client import AsyncClient, Client, CodeExecutor
from mcp_exec_client.events import TextEvent

async def follow() -> str:
    async with AsyncClient() as client:
        run = await client.run("1", tools=["a.b"], timeout_seconds=3)
        async for event in client.stream(run.name):
            if isinstance(event, TextEvent):
                return event.text
        return (await CodeExecutor(client).execute("1", {"a": 1}, memory_limit="1G")).output

def block() -> list[str]:
    with Client(api_key=lambda: "k") as client:
        seconds: float | None = client.run("1", priority="High").durations.run  # wrong: it may have no durations
        client.run("1", toolz=["a.b"])  # wrong
        return [each.name for each in client.list(phase="Failed")]
"""


@pytest.mark.timeout(600)
def test_mypy_checks_a_user_s_program(wheel: Path, tmp_path: Path) -> None:
    python = create_environment(tmp_path / "environment")
    (tmp_path / "constraints.txt").write_text(locked_versions())
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "-c", "constraints.txt"]
    subprocess.run([*command, f"{wheel}[client]"], cwd=tmp_path, check=True, timeout=paced(500))
    (tmp_path / "user.py").write_text(USER)
    check_types = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "user.py"]
    done = subprocess.run(check_types, cwd=tmp_path, capture_output=True, text=True, timeout=paced(500), check=False)
    wrong = [number for number, line in enumerate(USER.splitlines(), 1) if "# wrong" in line]
    assert [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line] == wrong, done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both wheels of a release."""
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run([ROOT / "hack/wheels", folder], check=True, capture_output=True, timeout=paced(60))
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("requirement", "program"),
    [
        ("mcp-exec-client", CHECKS["client"]),
        ("mcp-exec-client[agent]", CHECKS["agent"]),
        ("mcp-exec-client[openai]", CHECKS["openai"]),
        ("mcp-exec[kubectl]", CHECKS["kubectl"]),
    ],
)
def test_pip_installs_a_release_and_it_works(wheels: Path, requirement: str, program: str, tmp_path: Path) -> None:
    python = create_environment(tmp_path / "environment")
    (tmp_path / "constraints.txt").write_text(locked_versions())
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "-c", "constraints.txt"]
    subprocess.run([*command, "--find-links", str(wheels), requirement], cwd=tmp_path, check=True, timeout=paced(500))
    run(python, "-c", program)


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="the wheels of macOS depend on its version")
def test_an_archive_of_the_plugin_runs_without_an_installation(wheels: Path, tmp_path: Path) -> None:
    (wheel,) = wheels.glob("mcp_exec_client-*.whl")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    (here,) = (each for each in plugin.PLATFORMS if each.name == f"linux-{machine}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    path = plugin.build_archive(tmp_path, wheel, here, version="1.2.3", pythons=(version,))
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    python = create_environment(tmp_path / "environment")  # which has no packages
    done = subprocess.run(
        [tmp_path / "store" / plugin.NAME, "get", "--kubeconfig", "none"],
        env={"PATH": "/usr/bin:/bin", "MCP_EXEC_PYTHON": str(python)},
        capture_output=True, text=True, timeout=paced(60), check=False,
    )  # fmt: skip
    assert "none" in done.stderr
    assert "Python package" not in done.stderr
    assert "Traceback" not in done.stderr
