from pathlib import Path

import pytest
from tests.component.hack.shims import Machine, Nodes


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine.made(tmp_path)


@pytest.fixture
def docker(tmp_path: Path) -> Nodes:
    """Machine with a running Docker engine and kind, without a cluster."""
    return Nodes.made(tmp_path)
