"""Values: strict, described, used, and said once."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from tests.component.chart.conftest import CHART, ROOT, Render

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

BAD = [
    ({"gatway": {}}, "gatway"),
    ({"gateway": {"replica": 2}}, "replica"),
    ({"gateway": {"replicas": "two"}}, "gateway.replicas"),
    ({"gateway": {"replicas": 0}}, "gateway.replicas"),
    ({"gateway": {"maxBodyBytes": 10**8}}, "gateway.maxBodyBytes"),
    ({"gateway": {"service": {"type": "Cluster"}}}, "gateway.service.type"),
    ({"gateway": {"initialApiKey": {"limits": {"tools": ["github"]}}}}, "gateway.initialApiKey.limits.tools.0"),
    ({"gateway": {"initialApiKey": {"limits": {"users": ["*-admin"]}}}}, "gateway.initialApiKey.limits.users.0"),
    ({"gateway": {"initialApiKey": {"approver": "yes"}}}, "gateway.initialApiKey.approver"),
    ({"operator": {"resyncSeconds": 0}}, "operator.resyncSeconds"),
    ({"operator": {"replicas": 0}}, "operator.replicas"),
    ({"operator": {"leaderElection": {"leaseDurationSeconds": 0}}}, "operator.leaderElection.leaseDurationSeconds"),
    ({"operator": {"extraEnv": [{"value": "x"}]}}, "operator.extraEnv.0"),
    ({"operator": {"tolerations": [{"effect": "Never"}]}}, "operator.tolerations.0.effect"),
    ({"pool": {"runtimeClassName": 7}}, "pool.runtimeClassName"),
    ({"pool": {"runtimeClassName": "G Visor"}}, "pool.runtimeClassName"),
    ({"pool": {"runtimeClass": "gvisor"}}, "runtimeClass"),
    ({"pool": {"warm": {"min": -1}}}, "pool.warm.min"),
    ({"pool": {"warm": {"most": 5}}}, "most"),
    ({"pool": {"warm": {"max": -1}}}, "pool.warm.max"),
    ({"pool": {"scaling": {"refillPerSecond": 0}}}, "pool.scaling.refillPerSecond"),
    ({"pool": {"onEmpty": "Fail"}}, "pool.onEmpty"),
    ({"pool": {"maxTimeoutSeconds": 3601}}, "pool.maxTimeoutSeconds"),
    ({"extraPools": [{"image": "x:1"}]}, "extraPools.0"),
    ({"extraPools": [{"name": "A"}]}, "extraPools.0.name"),
    ({"namespaces": []}, "namespaces"),
    ({"namespaces": "agents"}, "namespaces"),
    ({"namespaces": ["a", "a"]}, "namespaces"),
    ({"podSecurity": "strict"}, "podSecurity"),
    ({"logLevel": "verbose"}, "logLevel"),
    ({"crds": {"upgrade": "yes"}}, "crds.upgrade"),
    ({"broker": {"replicas": 0}}, "broker.replicas"),
    ({"demoServers": {"stocks": {"enabled": True}}}, "stocks"),
    ({"toolServers": {"docs": {"uri": "http://x"}}}, "uri"),
    ({"toolServers": {"docs": {"url": "http://x", "policy": {"default": "Maybe"}}}}, "toolServers.docs.policy.default"),
]


@pytest.mark.parametrize(("values", "named"), BAD, ids=[json.dumps(values) for values, _ in BAD])
def test_a_bad_value_is_refused_by_its_name(helm3: Render, helm4: Render, values: dict[str, Any], named: str) -> None:
    render = (helm3, helm4)[BAD.index((values, named)) % 2]
    with pytest.raises(AssertionError) as refusal:
        render(values)
    # Helm 4 writes a path as /gateway/replicas, Helm 3 as gateway.replicas.
    assert named in str(refusal.value).replace("/", ".")


def test_what_is_generated_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hack.chart", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


STDIO: dict[str, Any] = {"image": "i", "command": ["c"], "resources": {"limits": {"cpu": 2}}, "dataSize": 1073741824}
NUMBERS: list[tuple[dict[str, Any], str, Any]] = [
    ({"operator": {"resources": {"requests": {"cpu": 0.25}}}}, "cpu: 0.25", "Deployment"),
    ({"gateway": {"resources": {"limits": {"cpu": 2}}}}, "cpu: 2", "Deployment"),
    ({"pool": {"resources": {"limits": {"cpu": 2}, "requests": {"cpu": 0.25}}}}, "cpu: 0.25", "SandboxPool"),
    ({"extraPools": [{"name": "a", "resources": {"limits": {"cpu": 3}}}]}, "cpu: 3", "SandboxPool"),
    ({"toolServers": {"docs": {"stdio": STDIO}}}, "cpu: 2", "ToolServer"),
    ({"pool": {"resources": {"extended": {"nvidia.com/gpu": "2"}}}}, "nvidia.com/gpu: '2'", "SandboxPool"),
    ({"quota": {"enabled": True, "hard": {"limits.cpu": 2.5}}}, "limits.cpu: '2.5'", "ResourceQuota"),
]


@pytest.mark.parametrize(("values", "line", "kind"), NUMBERS, ids=[json.dumps(values) for values, _, _ in NUMBERS])
def test_quantities_are_numbers_or_texts_as_in_a_pod(
    helm3: Render, helm4: Render, values: dict[str, Any], line: str, kind: str
) -> None:
    for render in (helm3, helm4):
        assert any(line in yaml.safe_dump(item) for item in render(values).all(kind))


def test_the_defaults_satisfy_the_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)


def parts(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from parts(each, f"{path}.{name}")
    if "items" in schema:
        yield from parts(schema["items"], f"{path}[]")


def test_every_object_of_the_schema_refuses_unknown_keys() -> None:
    loose = [
        path for path, each in parts(SCHEMA, "") if "properties" in each and each.get("additionalProperties", True)
    ]
    assert loose == []


def test_every_value_is_described_in_values_yaml_and_in_the_schema() -> None:
    bare = [
        path for path, each in parts(SCHEMA, "") if not path.endswith(("[]", ".global")) and "description" not in each
    ]
    assert bare in ([], [".enabled"])
    lines = (CHART / "values.yaml").read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        assert not re.match(r" *[A-Za-z-]+:", line) or above.lstrip().startswith("# "), f"no comment above {line!r}"


def test_every_value_is_used_by_a_template() -> None:
    text = "\n".join(path.read_text() for path in CHART.rglob("templates/**/*") if path.is_file())
    text += (CHART / "files" / "variables.json").read_text()
    # A pool's fields, a quota's bounds and the like are handed on as they are.
    # A digest is looked up by the name of its image.
    handed_on = (
        "digests",
        "pool",
        "dataPool",
        "typescriptPool",
        "resources",
        "requests",
        "limits",
        "quota",
        "limitRange",
        "demoServers",
        "prices",
    )
    for path, each in parts(SCHEMA, ""):
        names = path.removeprefix(".").split(".")
        if path and "[]" not in path and path != ".global" and not set(names[:-1]) & set(handed_on):
            assert re.search(rf"[. \"]{names[-1]}\b", text), f"{path} is used nowhere ({each.get('description')})"


def test_the_value_null_takes_a_default_away(render: Render) -> None:
    pods = render({"operator": {"resources": {"limits": {"memory": None}}}}).pods()
    assert "memory" not in pods["mcp-exec-operator"]["containers"][0]["resources"].get("limits", {})
