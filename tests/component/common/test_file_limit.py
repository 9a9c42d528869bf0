"""The limit of open files of a process of its own: what a test changes of its own stays changed."""

import subprocess
import sys

import pytest
from tests.support.pace import paced

PROGRAM = """
import resource, sys
from mcp_exec_common.process.setup import raise_file_limit
soft, hard, most = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
raise_file_limit(most)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "most", "expected"),
    [(256, 9999, "1024 1024"), (256, 512, "512 1024"), (800, 512, "800 1024")],
)
def test_the_limit_is_raised_as_far_as_it_may_be_and_never_lowered(soft: int, most: int, expected: str) -> None:
    command = (sys.executable, "-c", PROGRAM, str(soft), "1024", str(most))
    assert (
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=paced(60)).stdout.strip()
        == expected
    )
