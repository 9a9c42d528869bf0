"""The wheel in empty environments: how it is built, and what works with each extra."""

import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.pace import paced

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHECKS = {
    "": """
import mcp_exec_api, mcp_exec_client
try:
    from mcp_exec_client import Client
except ImportError as error:
    assert "install the extra `client`" in str(error), error
else:
    raise AssertionError("httpx is installed")
import contextlib, io
said = io.StringIO()
with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
    main(["get", "--gateway", "http://127.0.0.1:1", "--api-key", "k"])
assert "the Python package httpx is missing: install the extra `client`" in said.getvalue(), said.getvalue()
""",
    "client": """
import mcp_exec_client.mcp_bridge.bridge
from mcp_exec_client import AsyncClient, Client, CodeExecutor, GatewayUnreachable
from mcp_exec_client.transport import NO_RETRIES
try:
    with Client("http://127.0.0.1:1", api_key="k", retries=NO_RETRIES) as client:
        client.run("print(1)")
except GatewayUnreachable as error:
    assert "POST http://127.0.0.1:1/v1/executions: " in str(error), error
""",
    "cli": "import yaml, mcp_exec_client.agent, mcp_exec_client.cli.backends.checks",
    "kubectl": "import mcp_exec_client.cli.backends.cluster_checks, kubernetes.aio",
    "agent": "from mcp_exec_client.agent import AnthropicProvider",
    "openai": "from mcp_exec_client.agent import OpenAIProvider",
    "generate": "import mcp_exec_client.cli.backends.catalog_sources",
}
"""A program that each extra must run; an empty name is the wheel without extras."""
SMALL = {
    "": {"annotated-types", "pydantic", "pydantic-core", "typing-extensions", "typing-inspection"},
    "client": {"anyio", "certifi", "h11", "httpcore", "httpx", "idna"},
}
"""The packages that an extra brings, where they must be few."""
_SEPARATOR = "--- packages"
_HELP = """
from mcp_exec_client.cli.main import main
try:
    main(["--help"])
except SystemExit as ended:
    assert not ended.code
"""
_PACKAGES = f"""
import importlib.metadata
print("{_SEPARATOR}", *(each.name for each in importlib.metadata.distributions()), sep="\\n")
"""


def build_wheel(folder: Path) -> Path:
    """Build the wheel in a folder and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=paced(60))
    (wheel,) = folder.glob("*.whl")
    return wheel


def create_environment(folder: Path) -> Path:
    """Create an empty environment, without pip, and return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin/python"


def find_requirements(extra: str) -> set[str]:
    """Return the names of all packages that the wheel with this extra requires, as installed here."""
    found: set[str] = set()
    waiting = [*map(Requirement, PROJECT["dependencies"])]
    if extra:
        waiting.append(Requirement(f"{PROJECT['name']}[{extra}]"))
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        name = canonicalize_name(requirement.name)
        if name == PROJECT["name"]:
            for each in requirement.extras:
                waiting += map(Requirement, PROJECT["optional-dependencies"][each])
            continue
        found.add(name)
        for line in metadata.requires(name) or []:
            inner = Requirement(line)
            extras = requirement.extras or {""}
            if inner.marker is None or any(inner.marker.evaluate({"extra": each}) for each in extras):
                waiting.append(inner)
    return found


def run(python: Path, *arguments: str | Path) -> str:
    """Run an environment's interpreter without this checkout's packages and return its output."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [python, "-I", *arguments],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=paced(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(python: Path, extra: str) -> None:
    """Check that the command and the extra's program work, and that a small extra is small."""
    shown, _, installed = run(python, "-c", _HELP + CHECKS[extra] + _PACKAGES).partition(_SEPARATOR)
    assert "usage: mcp-exec" in shown
    if extra in SMALL:
        found = {canonicalize_name(name) for name in installed.split()} - {PROJECT["name"], "pip", "setuptools"}
        assert found == SMALL[""] | SMALL[extra]


def locked_versions() -> str:
    """Return the lines of a pip constraints file: the versions that the tests run with."""
    lock = (ROOT / "locks/dev.txt").read_text()
    return "\n".join(line.rstrip(" \\") for line in lock.splitlines() if re.match(r"[\w.-]+==", line)) + "\n"
