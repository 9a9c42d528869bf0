"""The npm package: what it has, how it compares with the Python client, and that its generated files are current."""

import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.component.client_typescript.conftest import CLIENT, ROOT
from tests.support.pace import paced

from mcp_exec_api.wire.problems import PROBLEM_TITLES
from mcp_exec_api.wire.version import RELEASE
from mcp_exec_client.errors import find_error_class

TESTS = sorted(path.name for path in (CLIENT / "test").glob("*.test.ts"))


@pytest.mark.parametrize("file", TESTS)
def test_the_client_s_own_tests_pass(node: Path, file: str) -> None:
    bounds = ("--test-timeout=20000", "--test-force-exit")
    command = [node, "--test", "--test-reporter=dot", *bounds, f"test/{file}"]
    done = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True, timeout=paced(100), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_types_are_those_of_the_api_s_description(tools: Path, node: Path, tmp_path: Path) -> None:
    description = ROOT / "docs/reference/openapi.json"
    command = [node, tools / "node_modules/openapi-typescript/bin/cli.js", description, "--output", "schema.ts"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=paced(60), check=True)
    generated = (tmp_path / "schema.ts").read_text()
    assert generated == (CLIENT / "src/schema.ts").read_text(), "run `make generate`"


def test_the_package_has_the_version_of_the_project_and_no_dependencies(archive: Path) -> None:
    with tarfile.open(archive) as package:
        names = set(package.getnames())
        file = package.extractfile("package/package.json")
        assert file is not None
        manifest = json.load(file)
    assert archive.name == f"mcp-exec-client-{RELEASE}.tgz"
    assert manifest["version"] == RELEASE
    assert not manifest.keys() & {"dependencies", "devDependencies", "scripts", "bin"}
    modules = {path.stem for path in (CLIENT / "src").glob("*.ts")}
    written = {f"package/dist/{module}{ending}" for module in modules for ending in (".js", ".d.ts")}
    assert names == {"package/package.json", "package/README.md", "package/LICENSE"} | written


def test_problems_have_the_classes_that_they_have_in_the_python_client(node: Path) -> None:
    cases = [
        [kind, status] for kind in (*PROBLEM_TITLES, "http") for status in (400, 401, 403, 404, 409, 410, 412, 429, 500)
    ]
    program = (
        f"import {{ findErrorClass }} from {json.dumps(str(CLIENT / 'src/errors.ts'))};"
        f"console.log(JSON.stringify({json.dumps(cases)}.map((each) => findErrorClass(...each).name)));"
    )
    command = [node, "--no-warnings", "--input-type=module", "--eval", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=paced(60), check=True)
    assert json.loads(done.stdout) == [find_error_class(str(kind), int(str(status))).__name__ for kind, status in cases]
