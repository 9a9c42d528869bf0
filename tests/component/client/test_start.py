"""What `mcp-exec` imports before it runs a command."""

import subprocess
import sys

from tests.support.pace import paced

OWN = ("mcp_exec_api", "mcp_exec_common", "mcp_exec_tools")
LIBRARIES = ("aiohttp", "httpx", "pydantic", "mcp", "anthropic", "kubernetes", "yaml")
PARSER = "import sys, mcp_exec_client.cli.main as cli; cli.build_parser(); print(*sys.modules)"


def test_the_parser_imports_no_library_before_a_command_runs() -> None:
    """Libraries take longer to import than most commands run."""
    loaded = subprocess.run(
        [sys.executable, "-c", PARSER], check=True, capture_output=True, text=True, timeout=paced(60)
    )
    assert not {*OWN, *LIBRARIES} & set(loaded.stdout.split())
