"""The built wheel in environments that have nothing but what an extra declares. `make installs` tries all with pip."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from tests.support.installs import SMALL, build_wheel, check, create_environment, find_requirements


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def link_packages(names: set[str], site: Path) -> None:
    """Link the files of installed packages into an environment, as if it had installed them."""
    for name in names:
        distribution = metadata.distribution(name)
        for top in {path.parts[0] for path in distribution.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            target = site / top
            if not target.exists():
                target.symlink_to(str(distribution.locate_file(top)))


@pytest.mark.parametrize("extra", SMALL)
def test_the_wheel_works_with_what_an_extra_declares_and_nothing_else(wheel: Path, extra: str, tmp_path: Path) -> None:
    python = create_environment(tmp_path / "environment")
    (site,) = tmp_path.glob("environment/lib/python*/site-packages")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, site], check=True, timeout=60)
    link_packages(find_requirements(extra), site)
    check(python, extra)
