"""What a real API server makes of the definitions: quantities as people write them, messages, selectors by fields."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
import yaml
from tests.support.control_plane import ROOT, ControlPlane, running_control_plane
from tests.support.until import eventually

Object = dict[str, Any]
API: Final = "/apis/mcp-exec.dev/v1beta1/namespaces/default"
STDIO: Final[Object] = {"image": "i", "command": ["c"]}
_names = itertools.count()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with running_control_plane(tmp_path_factory.mktemp("plane") / "it") as plane:
        applied = plane.kubectl("apply", "--server-side", "-f", str(ROOT / "charts/mcp-exec/crds"))
        assert applied.returncode == 0, applied.stderr
        yield plane


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.connect() as client:
        for plural in ("codeexecutions", "sandboxpools", "sandboxsessions", "toolservers", "skills"):
            eventually(lambda plural=plural: client.get(f"{API}/{plural}").is_success or None)
        yield client


def create(server: httpx.Client, kind: str, spec: Object) -> httpx.Response:
    item = {"apiVersion": "mcp-exec.dev/v1beta1", "kind": kind, "metadata": {"name": f"a{next(_names)}"}, "spec": spec}
    return server.post(f"{API}/{kind.lower()}s?fieldValidation=Strict", json=item)


QUANTITIES: Final = [2, 0.25, 0, 1000000000, "250m", "512Mi", "2", "0.5"]
PLACES: Final[dict[str, Any]] = {
    "limits": lambda value: ("SandboxPool", {"image": "i", "maxPods": 9, "resources": {"limits": {"cpu": value}}}),
    "requests": lambda value: ("SandboxPool", {"image": "i", "maxPods": 9, "resources": {"requests": {"cpu": value}}}),
    "workspaceSize": lambda value: ("SandboxPool", {"image": "i", "maxPods": 9, "workspaceSize": value}),
    "codeCheck": lambda value: ("SandboxPool", {"image": "i", "maxPods": 9, "codeCheck": {"memory": value}}),
    "stdio": lambda value: ("ToolServer", {"stdio": STDIO | {"resources": {"limits": {"memory": value}}}}),
    "dataSize": lambda value: ("ToolServer", {"stdio": STDIO | {"dataSize": value}}),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("value", QUANTITIES)
def test_quantities_are_numbers_or_texts_as_in_a_pod(server: httpx.Client, place: Any, value: Any) -> None:
    kind, spec = place(value)
    answer = create(server, kind, spec)
    assert answer.status_code == httpx.codes.CREATED, answer.text
    stored = answer.json()["spec"]
    assert str(value) in str(stored)


@pytest.mark.parametrize("value", [-1, "two", "1 Gi", {"a": 1}, [1], "", "9" * 40])
def test_what_is_no_quantity_is_refused(server: httpx.Client, value: Any) -> None:
    kind, spec = PLACES["limits"](value)
    assert create(server, kind, spec).status_code == httpx.codes.UNPROCESSABLE_ENTITY


def extended(value: Any) -> Object:
    return {"image": "i", "maxPods": 9, "resources": {"extended": {"nvidia.com/gpu": value}}}


@pytest.mark.parametrize("value", [1, "2"])
def test_amounts_of_extended_resources_are_numbers_or_texts_as_in_a_pod(server: httpx.Client, value: Any) -> None:
    answer = create(server, "SandboxPool", extended(value))
    assert answer.status_code == httpx.codes.CREATED, answer.text
    assert answer.json()["spec"]["resources"]["extended"] == {"nvidia.com/gpu": value}


@pytest.mark.parametrize("value", [0, 1.5, "0", "1.5", "2k", "", {"a": 1}, [1]])
def test_what_is_no_whole_amount_is_refused(server: httpx.Client, value: Any) -> None:
    assert create(server, "SandboxPool", extended(value)).status_code in (400, 422)  # of another type, or no amount


TOOLS: Final[dict[str, Any]] = {
    "execution": ("CodeExecution", lambda tools: {"code": "1", "tools": tools}, "spec.tools[0]"),
    "allow": (
        "SandboxPool",
        lambda tools: {"image": "i", "maxPods": 9, "tools": {"allow": tools}},
        "spec.tools.allow[0]",
    ),
    "skill": (
        "Skill",
        lambda tools: {"name": "a", "version": 1, "description": "d", "code": "def run(): ...", "tools": tools},
        "spec.tools[0]",
    ),
}


@pytest.mark.parametrize(("kind", "build", "field"), TOOLS.values(), ids=TOOLS)
@pytest.mark.parametrize("pattern", ["expenses", "x", "", "a b.c"])
def test_a_pattern_without_a_tool_is_refused_with_the_form_to_write(
    server: httpx.Client, kind: str, build: Any, field: str, pattern: str
) -> None:
    answer = create(server, kind, build([pattern]))
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY, answer.text
    message = answer.json()["message"]
    assert f"{field}: Invalid value" in message
    assert "write SERVER.TOOL, each with an optional * at its end, for example github.create_*" in message
    assert "should match" not in message
    assert create(server, kind, build(["expenses.*", "*.*", "a.b"])).is_success


SELECTED: Final = [
    ("codeexecutions", "status.reason=NotObserved"),
    ("codeexecutions", "spec.poolRef.name=large"),
    ("codeexecutions", "status.phase!=Failed,spec.priority=Normal"),
    ("codeexecutions", "spec.user=ann"),
    ("codeexecutions", "spec.session=s,spec.workspace.name=w"),
    ("sandboxpools", "spec.image=chosen"),
    ("sandboxsessions", "spec.poolRef.name=large"),
    ("toolservers", "status.reason=NotObserved"),
    ("skills", "spec.name=chosen,spec.version=7"),
]


def test_objects_are_selected_by_the_fields_that_lists_show(server: httpx.Client, plane: ControlPlane) -> None:
    if (int(server.get("/version").json()["minor"].rstrip("+"))) < 31:
        pytest.skip("Kubernetes selects by fields of custom resources from 1.31 on")
    chosen = {
        "CodeExecution": {
            "code": "1", "poolRef": {"name": "large"}, "user": "ann", "session": "s", "workspace": {"name": "w"},
        },
        "SandboxPool": {"image": "chosen", "maxPods": 9},
        "SandboxSession": {"name": "s", "user": "ann", "poolRef": {"name": "large"}},
        "ToolServer": {"url": "https://example.invalid"},
        "Skill": {"name": "chosen", "version": 7, "description": "d", "code": "def run(): ..."},
    }  # fmt: skip
    for kind, spec in chosen.items():
        assert create(server, kind, spec).is_success
    for plural, selector in SELECTED:
        listed = plane.kubectl("get", plural, "--field-selector", selector, "-o", "name")
        assert (listed.returncode, listed.stderr) == (0, "")
        assert listed.stdout.strip(), (plural, selector)
    failed = create(server, "CodeExecution", {"code": "1"}).json()
    status = failed | {"status": {"phase": "Failed", "reason": "UserError"}}
    assert server.put(f"{API}/codeexecutions/{failed['metadata']['name']}/status", json=status).is_success
    listed = plane.kubectl(
        "get", "cex", "--field-selector", "status.phase=Failed,status.reason=UserError", "-o", "name"
    )
    assert listed.stdout == f"codeexecution.mcp-exec.dev/{failed['metadata']['name']}\n"


def test_every_version_of_a_definition_has_its_selectable_fields(server: httpx.Client) -> None:
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        name = yaml.safe_load(path.read_text())["metadata"]["name"]
        stored = server.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").json()
        conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
        assert conditions.get("NonStructuralSchema", "False") == "False"
        if int(server.get("/version").json()["minor"].rstrip("+")) >= 31:
            assert all(1 <= len(each["selectableFields"]) <= 8 for each in stored["spec"]["versions"]), name
