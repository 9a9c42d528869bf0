"""Completion in real shells. A shell that is not installed is skipped."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.component.gateway.conftest import KEY, Gateway
from tests.support.constants import DEADLINE

from mcp_exec_client.cli.completion import SCRIPTS

ASK = {
    "bash": "COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _mcp_exec; "
    "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
    "zsh": "words=({words}); CURRENT=$#words; _describe() {{ print -l -- ${{(P)2}} }}; _files() {{ print FILES }}; "
    "_mcp_exec",
    "fish": "complete -C {line}",
}
"""Prints the candidates of a command line, without a terminal."""
BEFORE = {"bash": "", "zsh": "compdef() {{ }}\n", "fish": ""}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with the program."""
    program = tmp_path / "mcp-exec"
    # a loaded machine may take longer than a person would wait
    patience = "from mcp_exec_client.cli import completion\ncompletion.REQUEST_SECONDS = 60.0\n"
    program.write_text(f"#!{sys.executable} -P\n{patience}from mcp_exec_client.cli.main import main\nmain()\n")
    program.chmod(0o755)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("shell", list(SCRIPTS))
async def test_a_shell_completes_commands_options_values_and_names(shell: str, path: str, gateway: Gateway) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    await gateway.post({"code": "1", "name": "my-run"}, query="?wait=0")
    environment = {"PATH": path, "HOME": "/nonexistent", "MCP_EXEC_GATEWAY": gateway.url, "MCP_EXEC_API_KEY": KEY}
    kept = {name: value for name, value in os.environ.items() if name.startswith(("COVERAGE_", "XDG_", "PYTHON"))}

    async def complete(*words: str) -> set[str]:
        quoted = " ".join(f"'{word}'" for word in ("mcp-exec", *words))
        ask = ASK[shell].format(words=quoted, line="'" + " ".join(("mcp-exec", *words)) + "'")
        process = await asyncio.create_subprocess_exec(
            *(program, "-c", f"{BEFORE[shell].format()}{SCRIPTS[shell]}\n{ask}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env=kept | environment,
        )
        async with asyncio.timeout(DEADLINE):
            out, err = await process.communicate()
        assert err == b""
        return {line.replace("\t", ":").partition(":")[0] for line in out.decode().splitlines() if line.strip()}

    assert await complete("tools", "") == {"search", "show"}
    assert await complete("get", "-o", "w") == {"wide"}
    assert await complete("logs", "-f", "my") == {"my-run"}
    if shell == "zsh":
        assert await complete("run", "etc") == {"FILES"}
