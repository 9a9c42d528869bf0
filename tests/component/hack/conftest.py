from pathlib import Path

import pytest
from tests.component.hack.shims import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine.made(tmp_path)
