"""Each line of docs/coming-from, run in its order: programs, commands, and the cells of tables that have code.

A page is one program, as a notebook is: its blocks of Python and the cells below "here it is" share their names. Cells
below "in the code" and "in TypeScript" run in a sandbox, those of a table in one session. Commands run in a shell in a
folder of their own.
Paths after `kubectl explain` are read from the CRDs, values after `--set` from the chart.
"""

import ast
import asyncio
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import yaml
from tests.component.gateway.conftest import CEX, KEY, Gateway
from tests.support.constants import DEADLINE
from tests.support.pages import DOCS, split_steps

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.constants import Language
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_client import AsyncClient, Client

ROOT = DOCS.parent
PAGES = sorted(path.name for path in (DOCS / "coming-from").glob("*.md"))
ON_A_CLUSTER = "tool-loop.md"
"""The page whose blocks of commands tests/e2e/test_pages.py runs."""
BLOCK = re.compile(r"```(?P<kind>\w+)\n(?P<text>.*?)^```$|^(?P<row>\|[^\n]*\|)$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`` (.+?) ``|`([^`]+)`")
HERE = "here it is"
INSIDE: dict[str, Language] = {"in the code": "python", "in TypeScript": "typescript"}
"""Language of the code below each title of a column."""
SPECS: dict[str, Any] = {"CodeExecution": CodeExecutionSpec, "SandboxPool": SandboxPoolSpec}
CRDS = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "charts/mcp-exec/crds").glob("*.yaml"))]
VALUES_SCHEMA = json.loads((ROOT / "charts/mcp-exec/values.schema.json").read_text())


@dataclass(frozen=True)
class Line:
    """A block, or the code of one cell."""

    kind: str
    """Language of a block, or title of the column."""
    text: str
    place: int
    """Its line in the page."""
    session: str = ""
    """The table of a cell that runs in a sandbox."""


def read_page(name: str) -> Iterator[Line]:
    text = (DOCS / "coming-from" / name).read_text()
    titles: list[str] = []
    last = table = 0
    for match in BLOCK.finditer(text):
        place = text.count("\n", 0, match.start()) + 1
        if not match["row"]:
            yield Line(match["kind"], match["text"], place)
            continue
        cells = [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", match["row"])[1:-1]]
        if place != last + 1:
            titles, table = cells, place
        last = place
        if len(titles) < 3 or titles[1] not in (HERE, *INSIDE) or cells[1] == titles[1] or set(cells[1]) <= {"-"}:
            continue
        codes = [first or second for first, second in CODE.findall(cells[1])]
        assert codes or cells[2], f"{name}:{place}: a row without code says why"
        for code in codes:
            yield Line(titles[1], code, place, f"table-{table}" if titles[1] in INSIDE else "")


class Reader:
    """Does what a reader of the page does."""

    def __init__(self, page: str, folder: Path, gateway: Gateway) -> None:
        self.page = page
        self._api_url = gateway.api.url
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._environment = {**os.environ, "HOME": str(folder)}
        programs = folder / "bin"
        programs.mkdir()
        (programs / "mcp-exec").write_text(f'#!/bin/sh\nexec {sys.executable} -m mcp_exec_client "$@"\n')
        (programs / "mcp-exec").chmod(0o755)
        self._environment["PATH"] = f"{programs}:{self._environment['PATH']}"

    async def read(self) -> None:
        try:
            for line in read_page(self.page):
                try:
                    await self._do(line)
                except Exception as error:
                    raise AssertionError(f"{self.page}:{line.place}: {line.text}") from error
        finally:
            for value in self.names.values():
                if isinstance(value, AsyncClient):
                    await value.aclose()
                elif isinstance(value, Client):
                    value.close()

    async def _do(self, line: Line) -> None:
        match line.kind:
            case "python":
                shown = re.findall(r"^ *# -> ?(.*)$", line.text, re.MULTILINE)
                printed = StringIO()
                self.names["print"] = partial(print, file=printed)
                await self._run_python(line.text)
                assert printed.getvalue().splitlines() == shown
            case "console" if self.page != ON_A_CLUSTER:
                for step in split_steps(line.text):
                    lines = (await self._run_command(step.command)).splitlines()
                    assert all(each in lines for each in step.shown), (step.command, lines)
            case "yaml":
                for item in yaml.safe_load_all(line.text):
                    check_manifest(item)
                    if item.get("kind") == "CodeExecution":
                        await self._apply_execution(item)
            case _ if line.kind in INSIDE:
                await asyncio.to_thread(self._run_inside, line)
            case _ if line.kind == HERE:
                await self._run_cell(line.text)

    async def _run_cell(self, text: str) -> None:
        word = text.split()[0]
        if checked := CHECKS.get(word):
            checked(text)
        elif word in ("mcp-exec", "curl"):
            await self._run_command(text)
        elif word in ("GET", "POST", "PUT", "DELETE"):
            check_route(text)
        else:
            await self._run_python(text)

    async def _run_python(self, text: str) -> None:
        result = eval(compile(text, self.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), self.names)
        if inspect.iscoroutine(result):
            await result

    def _run_inside(self, line: Line) -> None:
        with Client() as client:
            run = client.run(
                line.text,
                language=INSIDE[line.kind],
                tools=["*.*"],
                session=line.session,
                context={"user_id": "u-42"},
            )
        assert run.succeeded, run.error

    async def _apply_execution(self, item: Any) -> None:
        """Create the object at the API server, as kubectl does."""
        async with httpx.AsyncClient(base_url=self._api_url) as http:
            (await http.post(CEX, json=item)).raise_for_status()
            execution = (await http.get(f"{CEX}/{item['metadata']['name']}")).json()
        assert execution["status"]["phase"] == "Succeeded", execution["status"]

    async def _run_command(self, command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", command),
            cwd=self.folder,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, said = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert process.returncode == 0, (command, printed.decode(), said.decode())
        return printed.decode()


def check_manifest(item: Any) -> None:
    """Check an object by its model, which refuses unknown fields, and anything else as values of the chart."""
    if "kind" in item:
        assert item["apiVersion"].startswith("mcp-exec.dev/")
        SPECS[item["kind"]].model_validate(item["spec"])
    else:
        jsonschema.validate(item, VALUES_SCHEMA)


def check_explained(text: str) -> None:
    """Check that `kubectl explain KIND.PATH` has something to explain."""
    kind, *path = text.split()[2].split(".")
    assert text.startswith("kubectl explain ")
    (crd,) = (crd for crd in CRDS if crd["spec"]["names"]["singular"] == kind)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema.get("items", schema)["properties"][name]
    assert schema["description"]


def check_value(text: str) -> None:
    """Check that the schema of the chart's values, which refuses unknown names, allows `--set PATH=VALUE`."""
    path, _, value = text.removeprefix("--set ").partition("=")
    item: Any = yaml.safe_load(value)
    for name in reversed(path.split(".")):
        item = {name: item}
    jsonschema.validate(item, VALUES_SCHEMA)


def check_route(text: str) -> None:
    """Check that the API has the route."""
    method, path = text.split()
    paths = json.loads((DOCS / "reference/openapi.json").read_text())["paths"]
    assert method.lower() in paths[path], text


def check_target(text: str) -> None:
    """Check that `make` knows the target."""
    command = ["make", "-n", "-C", str(ROOT), *text.split()[1:]]
    dry = subprocess.run(command, capture_output=True, text=True, check=False)
    assert dry.returncode == 0, dry.stderr


def check_program(text: str) -> None:
    """Check that a program of the checkout exists and knows its options."""
    path, *options = text.split()[1:]
    source = (ROOT / path).read_text()
    assert all(f'"{option}"' in source for option in options if option.startswith("-")), text


CHECKS: dict[str, Callable[[str], None]] = {
    "kubectl": check_explained,
    "--set": check_value,
    "make": check_target,
    "python": check_program,
    "node": check_program,
}


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.md"])
async def test_each_line_of_a_page_does_what_the_page_says(
    gateway: Gateway, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    assert shutil.which("curl")
    assert len(list(read_page(page))) > 5
    reader = Reader(page, tmp_path, gateway)
    await asyncio.to_thread(asyncio.run, reader.read())


def test_the_index_has_every_page() -> None:
    index = (DOCS / "coming-from/README.md").read_text()
    assert all(f"({page})" in index for page in PAGES if page != "README.md")
