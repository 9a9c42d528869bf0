"""The command writes one line before it sends a key over a network in plain text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = ["-m", "mcp_exec_client", "mcp", "--gateway"]
"""A command that sends no key, because its standard input is empty. It may say that the gateway is not there."""


def errors(folder: Path, gateway: str, *options: str, **variables: str) -> list[str]:
    """Return the warnings on standard error of a command that has a key, and all that is no message of the command."""
    environment = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(folder), "MCP_EXEC_API_KEY": "mcpx_secret"}
    done = subprocess.run(
        [sys.executable, *options, *COMMAND, gateway],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        env=environment | variables, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stdout == ""
    return [line for line in done.stderr.splitlines() if not line.endswith("; check --gateway")]


@pytest.mark.parametrize("options", [(), ("-W", "error::UserWarning")], ids=["as it is", "with warnings as errors"])
def test_a_key_over_plain_http_to_another_machine_is_one_line(tmp_path: Path, options: tuple[str, ...]) -> None:
    (line,) = errors(tmp_path, "http://gateway.test:8080", *options)
    assert line.startswith("mcp-exec: warning: the key is sent to http://gateway.test:8080 over plain HTTP")
    assert "MCP_EXEC_PLAIN_HTTP=yes" in line
    assert "mcpx_secret" not in line


def test_what_is_encrypted_local_or_intended_is_no_line(tmp_path: Path) -> None:
    assert errors(tmp_path, "https://gateway.test") == []
    assert errors(tmp_path, "http://127.0.0.1:8080") == []
    assert errors(tmp_path, "http://gateway.test:8080", MCP_EXEC_PLAIN_HTTP="yes") == []
