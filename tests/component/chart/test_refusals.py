"""Values that would do harm after the installation are refused before it, in words."""

import json
import re
from typing import Any

import helm_python
import pytest
import yaml
from hack.chart import documents
from tests.component.chart.conftest import CHART, Render

DIGITS = "lower-case letters, digits and '-', with a letter or digit at both ends"
NETWORK = (
    "it must be a network without bits of a host, for example 10.0.0.0/8, fd00::/8 or, for one address, 10.1.2.3/32"
)
REPOSITORY = "it must be a registry and a path without https://, tag and digest, for example registry.example.com/team"
REFERENCE = "it must be an image without https://, for example registry.example.com/team/image:1.2, or empty"
SIZE = "it must be a size with its unit, for example 512Mi or 1Gi"
QUANTITY = "it must be a Kubernetes quantity, for example 250m, 2 or 512Mi"


def limits(**amounts: Any) -> dict[str, Any]:
    return {"resources": {"limits": amounts}}


def requests(**amounts: Any) -> dict[str, Any]:
    return {"resources": {"requests": amounts}}


STDIO = {"image": "i", "command": ["c"]}
REFUSED: list[tuple[dict[str, Any], str]] = [
    # one name for two pools of a namespace
    ({"extraPools": [{"name": "default"}]}, "two pools are named default in the namespace agents: rename one"),
    ({"extraPools": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "two pools are named a in the namespace agents"),
    (
        {"namespaces": ["x", "y"], "extraPools": [{"name": "a", "namespaces": ["y"]}, {"name": "a"}]},
        "two pools are named a in the namespace y",
    ),
    ({"dataPool": {"enabled": True}, "pool": {"name": "data"}}, "two pools are named data in the namespace agents"),
    ({"extraPools": [{"name": "a", "namespaces": ["agents", "agents"]}]}, "extraPools.0.namespaces"),
    ({"toolServers": {"a": {"url": "http://a", "namespaces": ["agents", "agents"]}}}, "toolServers.a.namespaces"),
    # an address for the name of an image
    (
        {"images": {"repository": "https://registry.example"}},
        f'images.repository is "https://registry.example"; {REPOSITORY}',
    ),
    ({"images": {"repository": "registry.example/Team"}}, "images.repository"),
    ({"images": {"repository": "registry.example/team/"}}, "images.repository"),
    ({"images": {"repository": "registry.example/team:1"}}, "images.repository"),
    ({"gateway": {"image": {"repository": "https://r/i"}}}, f'gateway.image.repository is "https://r/i"; {REPOSITORY}'),
    ({"pool": {"image": "http://r/i:1"}}, f'pool.image is "http://r/i:1"; {REFERENCE}'),
    ({"extraPools": [{"name": "a", "image": "oci://r/i:1"}]}, f'extraPools.0.image is "oci://r/i:1"; {REFERENCE}'),
    ({"dataPool": {"image": "r/I:1"}}, "dataPool.image"),
    ({"toolServers": {"a": {"stdio": STDIO | {"image": "https://r/i"}}}}, 'toolServers.a.stdio.image is "https://r/i"'),
    # more warm pods than pods
    ({"pool": {"warm": {"min": 101}}}, "pool default: warm.min is 101; it must not be more than maxPods, which is 100"),
    ({"pool": {"maxPods": 2}}, "pool default: warm.min is 3; it must not be more than maxPods, which is 2"),
    ({"pool": {"warm": {"min": 1, "max": 101}}}, "pool default: warm.max is 101; it must not be more than maxPods"),
    (
        {"extraPools": [{"name": "a", "maxPods": 2}]},
        "pool a: warm.min is 3; it must not be more than maxPods, which is 2",
    ),
    # networks
    ({"gateway": {"trustedProxies": ["10.0.0.1/8"]}}, f'gateway.trustedProxies.0 is "10.0.0.1/8"; {NETWORK}'),
    ({"gateway": {"trustedProxies": ["::/0", "fd00::1/8"]}}, f'gateway.trustedProxies.1 is "fd00::1/8"; {NETWORK}'),
    ({"gateway": {"trustedProxies": ["2001:db8:8000::/32"]}}, "gateway.trustedProxies.0"),
    ({"gateway": {"trustedProxies": ["10.0.0.0"]}}, "gateway.trustedProxies.0"),
    ({"gateway": {"trustedProxies": ["10.0.0/8"]}}, "gateway.trustedProxies.0"),
    ({"gateway": {"trustedProxies": ["1::2::/64"]}}, "gateway.trustedProxies.0"),
    ({"gateway": {"trustedProxies": ["fd00::/129"]}}, "gateway.trustedProxies.0"),
    ({"broker": {"allowedAddresses": ["169.254.169.254/31", "10.0.0.1/31"]}}, "broker.allowedAddresses.1"),
    ({"broker": {"allowedAddresses": ["256.0.0.0/8"]}}, "broker.allowedAddresses.0"),
    ({"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.0/33"]}}}, f'apiServer.cidrs.0 is "10.0.0.0/33"; {NETWORK}'),
    ({"networkPolicy": {"apiServer": {"cidrs": ["0.0.0.0/0"]}}}, "networkPolicy.apiServer.cidrs.0 is any address"),
    # a bucket's settings without the bucket
    *(
        (
            {"broker": {"files": {"enabled": True, "s3": {name: value}}}},
            f"broker.files.s3.{name} is set, and broker.files.s3.bucket is not: files would be on the volume",
        )
        for name, value in {"prefix": "p", "endpoint": "http://a", "region": "r", "credentialsSecret": "s"}.items()
    ),
    # amounts above others
    *(
        (
            {process: requests(memory="1Gi")},
            f"{process}.resources: requests.memory is 1Gi; it must not be more than the limit, which is 512Mi",
        )
        for process in ("operator", "gateway", "broker")
    ),
    (
        {"gateway": {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}},
        "gateway.resources: requests.cpu is 2;",
    ),
    ({"pool": requests(cpu=2)}, "pool default: requests.cpu is 2; it must not be more than the limit, which is 1"),
    ({"extraPools": [{"name": "a", **limits(memory="32Mi")}]}, "pool a: requests.memory is 64Mi; it must not be more"),
    (
        {"toolServers": {"a": {"stdio": STDIO | requests(memory="2Gi")}}},
        "toolServers.a: requests.memory is 2Gi; it must",
    ),
    (
        {"limitRange": {"max": {"memory": "256Mi"}}},
        "limitRange: default.memory is 512Mi; it must not be more than max.memory, which is 256Mi",
    ),
    (
        {"limitRange": {"defaultRequest": {"cpu": 2}}},
        "limitRange: defaultRequest.cpu is 2; it must not be more than default",
    ),
    (
        {"pool": limits(memory="16Gi")},
        "pool default: limits.memory is 16Gi; it must not be more than limitRange.max.memory",
    ),
    (
        {"toolServers": {"a": {"stdio": STDIO | limits(cpu=5)}}},
        "toolServers.a: limits.cpu is 5; it must not be more than limi",
    ),
    # patterns, in words
    ({"images": {"tag": "a b"}}, 'images.tag is "a b"; it must be a tag, for example 1.2.3, or empty'),
    ({"broker": {"audit": {"size": "1g"}}}, f'broker.audit.size is "1g"; {SIZE}'),
    ({"broker": {"files": {"volume": {"size": "10GB"}}}}, f'broker.files.volume.size is "10GB"; {SIZE}'),
    ({"gateway": limits(memory="much")}, f'gateway.resources.limits.memory is "much"; {QUANTITY}'),
    ({"quota": {"hard": {"pods": "many"}}}, f'quota.hard.pods is "many"; {QUANTITY}'),
    ({"namespaces": ["Agents"]}, f'namespaces.0 is "Agents"; it must be 1 to 63 characters: {DIGITS}'),
    (
        {"toolServers": {"My_Server": {"url": "http://a"}}},
        f'toolServers has the name "My_Server"; it must be 1 to 63 characters: {DIGITS}',
    ),
    (
        {"toolServers": {"a": {"url": "ftp://x"}}},
        'toolServers.a.url is "ftp://x"; it must be a URL that begins with http://',
    ),
    ({"monitoring": {"serviceMonitor": {"interval": "30"}}}, "it must be a time with its unit, for example 30s"),
    ({"prices": {"currency": "Euro"}}, 'prices.currency is "Euro"; it must be'),
    ({"prices": {"coreHour": 0.03}}, "prices.coreHour is 0.03 and prices.gibHour is 0: give both a price, or neither"),
    ({"prices": {"coreHour": -1, "gibHour": 0.004}}, "prices.coreHour"),
    (
        {"broker": {"files": {"s3": {"endpoint": "minio:9000"}}}},
        "it must be an address without a path, for example https://minio.example.com",
    ),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[json.dumps(values) for values, _ in REFUSED])
def test_a_value_that_hurts_later_is_refused_with_what_is_allowed(
    helm3: Render, helm4: Render, values: dict[str, Any], message: str
) -> None:
    render = (helm3, helm4)[REFUSED.index((values, message)) % 2]
    with pytest.raises(AssertionError) as refusal:
        render(values)
    # Helm 4 writes the path of what its schema refuses as /gateway/replicas
    found = str(refusal.value)
    assert message in found or message in found.replace("/", ".")
    assert "pattern" not in found


@pytest.mark.parametrize(
    "values",
    [
        {"namespaces": ["x", "y"], "extraPools": [{"name": "a", "namespaces": [each]} for each in ("x", "y")]},
        {"pool": {"warm": {"min": 2, "max": 2}, "maxPods": 2}},
        {"gateway": {"trustedProxies": ["0.0.0.0/0", "10.128.0.0/9", "10.1.2.3/32", "::/0", "fd00::/8", "::1/128"]}},
        {"gateway": {"trustedProxies": ["2001:db8:8000::/33", "2001:DB8:0:0:0:0:0:0/32", "fe80::/10"]}},
        {"gateway": {"trustedProxies": ["::ffff:10.0.0.0/104"]}},
        {"images": {"repository": "[::1]:5000/team/sub_team--a"}},
        {"pool": {"image": f"registry.example:5000/a/b:1@sha256:{'0' * 64}"}},
        {"operator": {"resources": {"requests": {"memory": 1000}, "limits": {"memory": None}}}},
        {"limitRange": {"enabled": False}, "pool": limits(memory="16Gi")},
        {"broker": {"files": {"enabled": True, "s3": {"bucket": "abc", "region": "r"}}}},
    ],
    ids=json.dumps,
)
def test_what_only_looks_like_it_is_accepted(helm3: Render, helm4: Render, values: dict[str, Any]) -> None:
    for render in (helm3, helm4):
        assert render(values).all("Deployment")


def test_each_pattern_of_a_value_has_words_and_the_schema_has_none() -> None:
    assert "pattern" not in re.sub(r'"description": ".*"', "", documents.build_schema_json())
    rules = json.loads((CHART / "files/rules.json").read_text())
    assert all(rule["words"] for rule in rules)


def test_the_defaults_of_values_follow_their_rules() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for rule in json.loads((CHART / "files/rules.json").read_text()):
        for path in rule.get("at", ()):
            found = values
            for part in path.split("."):
                found = found.get(part) if isinstance(found, dict) else None
            if isinstance(found, str):
                assert re.search(rule["pattern"], found), path


def test_the_notes_say_what_several_brokers_lose_without_a_database() -> None:
    def find_notes(**broker: Any) -> str:
        with helm_python.Chart.load(str(CHART)) as chart:
            files = chart.render({"broker": broker}, name="mcp-exec", namespace="mcp-exec-system")
        return files["mcp-exec/templates/NOTES.txt"]

    audit, records = "Audit records are lost with each broker's pod", "No records are kept: usage, ratings"
    both = find_notes(replicas=2)
    assert "NOTE: broker.replicas is 2" in both
    assert (audit in both, records in both) == (True, True)
    with_database = find_notes(replicas=2, records={"database": {"secret": "db"}})
    assert (audit in with_database, records in with_database) == (True, False)
    one = find_notes()
    assert (audit in one, records in one, "Documentation: " in one) == (False, False, True)
