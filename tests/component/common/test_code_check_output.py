"""What a static check of code writes."""

import subprocess
import sys

from tests.support.pace import paced


def test_a_look_writes_nothing_of_the_code_to_stderr() -> None:
    code = "from mcp_exec_common.code_check.rules import find_issues; find_issues('\"\\\\d\" is 1')"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=paced(60), check=True
    )
    assert done.stderr == ""
