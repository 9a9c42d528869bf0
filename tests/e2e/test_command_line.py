"""The command line at the gateway, and as a plugin of kubectl at the API server alone."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.support import NAMESPACE, Cluster
from tests.support.pace import paced

CODE = """
import asyncio, sys
print("owner is", owner, flush=True)
progress(1, 2, "half of it")
await asyncio.sleep(2)
print("careful", file=sys.stderr)
{"owner": owner, "limit": limit + 1}
"""
SECONDS = paced(60)


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """The command as users call it, with the settings of its environment."""

    program: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            text=True, env={**os.environ, **self.environment},
        )  # fmt: skip

    def call(self, *arguments: str, code: int = 0) -> str:
        """Return standard output, or if another exit code than 0 is expected, the last line of standard error."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == code, (arguments, out, err)
        return err.splitlines()[-1] if code else out


@pytest.fixture
def command(url: str, api_key: str, tmp_path: Path) -> CommandLine:
    """`mcp-exec`, with a profile."""
    made = CommandLine(
        program=[sys.executable, "-P", "-m", "mcp_exec_client"],
        environment={"XDG_CONFIG_HOME": str(tmp_path), "KUBECONFIG": "/nonexistent"},
    )
    made.call("profile", "set", "here", "--gateway", url, "--api-key", api_key)
    return made


@pytest.fixture
def plugin(installed: Cluster, tmp_path: Path) -> CommandLine:
    """`kubectl mcp-exec`, by the kubectl of the cluster."""
    script = tmp_path / "kubectl-mcp_exec"
    script.write_text(f"#!{sys.executable} -P\nfrom mcp_exec_client.cli.main import kubectl_main\nkubectl_main()\n")
    script.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "KUBECONFIG": str(installed.kubeconfig), "MCP_EXEC_GATEWAY": "http://127.0.0.1:1"}
    return CommandLine(program=["kubectl", "mcp-exec"], environment=environment)


def test_code_runs_from_the_command_line_and_each_command_shows_it(command: CommandLine, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CODE)
    running = command.start(
        "run", str(program), "--context", "owner=ö", "--context", "limit:=10", "--description", "asks who it is",
        "--label", "team=a", "--name", "typed",
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == "owner is ö\n"
    assert running.poll() is None  # the output came while the code ran
    out, err = running.communicate(timeout=SECONDS)
    assert (running.returncode, json.loads(out)) == (0, {"owner": "ö", "limit": 11})
    assert err.splitlines() == ["progress: [###############...............]  50% 1/2 half of it", "careful"]
    assert command.call("logs", "-f", "typed") == "owner is ö\n"
    title, listed = command.call("get", "-o", "wide", "-l", "team=a").splitlines()
    assert title.split()[:4] == ["NAME", "PHASE", "REASON", "POOL"]
    assert listed.split()[:3] == ["typed", "Succeeded", "default"]
    assert "asks who it is" in listed
    shown = json.loads(command.call("get", "typed", "-o", "json", "--include-code"))
    assert (shown["code"], shown["phase"], shown["description"]) == (CODE, "Succeeded", "asks who it is")
    assert command.call("get", "-o", "name").splitlines()[0] == "typed"
    assert command.call("doctor").splitlines()[-1].startswith("ok       trial run")
    assert command.call("approvals", "typed") == ""


def test_kubectl_runs_code_with_the_api_server_alone(plugin: CommandLine) -> None:
    here = ("-n", NAMESPACE)
    out = plugin.call("run", "-c", "print(f'{owner}')\n[1, 2]", "--context", "owner=ö", "--name", "by-plugin", *here)
    assert out == "ö\n[\n  1,\n  2\n]\n"
    assert plugin.call("logs", "by-plugin", *here) == "ö\n"
    assert plugin.call("get", "-o", "name", *here).splitlines()[0] == "by-plugin"
    assert json.loads(plugin.call("get", "by-plugin", "-o", "json", *here))["output"]["result"] == [1, 2]
    assert "UserError in line 1" in plugin.call("run", "-c", "1 / 0", *here, code=1)
    waits = plugin.call("run", "-c", "1", "--pool", "nowhere", "--name", "waits", "--wait", "2", *here, code=4)
    assert "waits has not ended within 2 s" in waits
    assert plugin.call("cancel", "waits", *here) == "waits is being cancelled\n"
    assert "already exists" in plugin.call("run", "-c", "1", "--name", "by-plugin", *here, code=3)
    assert "spec.user" in plugin.call("run", "-c", "1", "--user", "u" * 254, *here, code=3)
    name = plugin.call("run", "-c", "while True: pass", "-d", *here).strip()
    assert "is being cancelled" in plugin.call("cancel", name, *here)
    assert "Cancelled" in plugin.call("logs", "-f", name, *here, code=130)
    assert "use --gateway" in plugin.call("tools", "search", "issue", *here, code=3)
    assert "pool default: " in plugin.call("doctor", *here)
    assert "not found" in plugin.call("get", "none", *here, code=3)
