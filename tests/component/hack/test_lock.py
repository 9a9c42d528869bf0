"""hack/lock: which packages it lets uv resolve, and whether present versions stay."""

import shutil
import sys
from pathlib import Path

import pytest
from tests.component.hack.shims import ROOT, Machine, refusal


@pytest.fixture
def locking(machine: Machine) -> Machine:
    """Machine with a virtual environment, and a uv that records its calls."""
    shutil.copy(ROOT / "pyproject.toml", machine.checkout)
    for folder in ("examples/frameworks", "tests/clients"):
        (machine.checkout / folder / "requirements").mkdir(parents=True)
        (machine.checkout / folder / "requirements/some.in").touch()
    for name in (".venv/bin", ".cache/uv/bin"):
        (machine.checkout / name).mkdir(parents=True)
    (machine.checkout / ".venv/bin/python").symlink_to(sys.executable)
    machine.stand_in("uv")
    (machine.folder / "bin/uv").rename(machine.checkout / ".cache/uv/bin/uv")
    return machine


def written(call: str) -> str:
    words = call.split()
    return words[words.index("--output-file") + 1]


@pytest.mark.parametrize("options", [(), ("--upgrade",)], ids=["present", "newest"])
def test_every_lock_is_written_and_versions_stay_unless_an_upgrade_is_asked_for(
    locking: Machine, options: tuple[str, ...]
) -> None:
    done = locking.run("lock", *options)
    assert done.returncode == 0, done.stderr
    calls = locking.calls("uv")
    assert {("--upgrade" in call.split()) for call in calls} == {bool(options)}
    files = {Path(written(call)) for call in calls}
    apart = {path for path in files if path.parent.name != "locks"}
    others = set((ROOT / "locks").glob("*.txt")) - {ROOT / f"locks/{name}.txt" for name in ("images", "kind", "tools")}
    assert apart == {Path("locks/frameworks/some.txt"), Path("locks/clients/some.txt")}
    assert {ROOT / path for path in files - apart} == others


def test_an_unknown_option_is_refused(locking: Machine) -> None:
    assert "knows --upgrade, not --newest" in refusal(locking.run("lock", "--newest"))
    assert locking.calls("uv") == []
