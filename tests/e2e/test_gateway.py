"""The gateway on a real cluster: errors leave nothing behind, retries are safe, streams resume, identities hold."""

import base64
import hashlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from kubernetes.client import AuthenticationV1TokenRequest, CoreV1Api, V1TokenRequestSpec

from mcp_exec_api.meta import parse_quantity
from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster, Gateway, execution_manifest
from tests.support.pace import paced
from tests.support.until import eventually


def names(cluster: Cluster) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.select("CodeExecution")}


def test_the_caller_is_proven_whatever_the_api_server_makes_of_the_context(gateway: Gateway) -> None:
    numbers = [1.0, 1e3, -0.0, 0.1, 1e-7, 2**53 + 1, 2**63 - 1, 2.0**60, 2.0**64, 9.3e18, 1.5e300]
    texts = {"é": "<&>\u2028😀", "": "", "1.0": "1.0", "\x7f": "\t\\"}
    context = {"z": numbers, "a": {"texts": texts, "nothing": [None, [], {}, {"n": None}]}, "Z": True}
    done = gateway.run("context['z'][5] + len(context['a']['texts'])", context=context)
    plain = gateway.run("0")
    assert (done["output"]["result"], done["caller"]) == (2**53 + 1 + len(texts), plain["caller"])
    assert plain["caller"]
    assert not plain["caller"].startswith("claimed:")


def test_an_account_that_nests_a_context_deeply_gets_it_rejected_and_stops_nobody(
    installed: Cluster, gateway: Gateway
) -> None:
    """The API server stores 10,000 levels, and parsers of Python fail at 1,000."""
    name = f"deep-{uuid.uuid4().hex[:8]}"
    manifest = json.dumps(execution_manifest(name=name, code="1", context={"deep": "here"}))
    manifest = manifest.replace('"here"', '{"a":' * 5000 + "1" + "}" * 5000)
    path = f"/apis/mcp-exec.dev/v1beta1/namespaces/{NAMESPACE}/codeexecutions"
    installed.run("kubectl", "create", "--raw", path, "-f", "-", stdin=manifest)
    # by kubectl: the client of these tests is one of Python
    installed.kubectl("wait", "--for=condition=Finished", "codeexecution", name, "-n", NAMESPACE, "--timeout=60s")
    shown = installed.kubectl("get", "codeexecutions", name, "-n", NAMESPACE, "-o", "jsonpath={.status.reason}")
    assert shown == "Rejected"
    assert gateway.run("print(1)")["output"]["stdout"] == "1\n"
    assert gateway.client.get(f"/v1/executions/{name}").json()["phase"] == "Failed"
    installed.delete("CodeExecution", name)


def test_executions_are_identified_measured_and_listed(installed: Cluster, gateway: Gateway) -> None:
    name = f"report-{uuid.uuid4().hex[:8]}"
    code = (
        "import time\n"
        "block = bytearray(80 << 20)\n"
        "for position in range(0, len(block), 4096):\n    block[position] = 1\n"
        "end = time.monotonic() + 1\n"
        "while time.monotonic() < end:\n    pass\n"
        "raise SystemExit(3)\n"
    )
    about = {
        "description": "Weekly report",
        "labels": {"report": "weekly"},
        "conversation": name,
        "useCase": "filtering",
    }
    done = gateway.run(code, name=name, **about)
    assert done["reason"] == "ExitCode"
    assert about.items() <= done.items()
    usage = done["usage"]
    assert 0.3 < usage["cpuSeconds"] < usage["sandboxSeconds"] + 1
    assert 80 * 2**20 <= usage["peakMemoryBytes"] < 2**30
    assert (usage["codeBytes"], usage["sandboxSeconds"] > 1) == (len(code), True)
    client = gateway.client
    assert client.get(f"/v1/executions/{name}", params={"include": "code"}).json()["code"] == code
    taken = client.post("/v1/executions", json={"code": "1", "name": name})
    assert (taken.status_code, taken.json()["errors"][0]["field"]) == (409, "name")

    def find(**query: str) -> list[str]:
        page = client.get("/v1/executions", params=query).json()
        return [item["name"] for item in page["items"]]

    eventually(lambda: find(limit="1") == [name])
    for query in ({"conversation": name}, {"caller": done["caller"], "labelSelector": "report=weekly", "limit": "1"}):
        assert find(**query) == [name]
    pool = next(each for each in client.get("/v1/stats").json()["pools"] if each["name"] == "default")
    limits = installed.get("SandboxPool", "default")["spec"]["resources"]["limits"]
    assert (pool["memoryBytes"], pool["warm"] + pool["starting"] > 0) == (parse_quantity(limits["memory"]), True)
    # Kubernetes 1.20 has no CEL rules, and the operator reports the change; later versions refuse it
    refused = installed.run(
        "kubectl", "patch", "cex", name, "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"code":"2"}}', check=False
    ).returncode

    def columns() -> dict[str, str]:
        header, row = installed.kubectl("get", "cex", name, "-n", NAMESPACE, "-o", "wide").splitlines()
        starts = {title: header.index(title) for title in header.split()}
        ends = [*sorted(starts.values())[1:], None]
        return {title: row[start:end].strip() for (title, start), end in zip(starts.items(), ends, strict=True)}

    eventually(lambda: refused or columns()["SPEC"] == "Changed")
    assert (columns()["CALLER"], columns()["DESCRIPTION"]) == (done["caller"], "Weekly report")


def test_an_execution_is_cancelled_when_its_waiting_client_goes_away(
    installed: Cluster, url: str, api_key: str
) -> None:
    headers = {"Authorization": f"Bearer {api_key}"}
    before = names(installed)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/v1/executions", json={"code": "while True: pass"}, headers=headers, timeout=1.5)
    (name,) = names(installed) - before
    assert installed.finished(name, seconds=30)["phase"] == "Cancelled"


def test_delete_cancels_and_keeps_what_was_printed(installed: Cluster, gateway: Gateway, pool: str) -> None:
    body = {"code": "print('begun')\nwhile True: pass", "poolRef": {"name": pool}}
    link = gateway.client.post("/v1/executions", params={"wait": "0"}, json=body).headers["location"]
    eventually(lambda: gateway.client.get(link).json()["phase"] == "Running", what="it runs")
    with gateway.client.stream("GET", f"{link}/events") as events:
        assert next(line for line in events.iter_lines() if "begun" in line)
    assert gateway.client.delete(link).status_code == 202
    done = gateway.client.get(link, params={"wait": "30"}).json()
    assert (done["phase"], done["output"]["stdout"]) == ("Cancelled", "begun\n")
    assert gateway.client.delete(link).status_code == 200


def read_events(lines: Iterator[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Id, type and data of each server-sent event."""
    event: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value
        elif not line and "data" in event:
            yield event.get("id", ""), event["event"], json.loads(event["data"])
            event = {}


def text_of(events: list[tuple[str, str, dict[str, Any]]]) -> str:
    return "".join(data["text"] for _, kind, data in events if kind == "stdout")


def test_a_stream_shows_output_as_it_comes_and_resumes_where_it_broke(gateway: Gateway, pool: str) -> None:
    code = "import threading\nfor number in range(8):\n    print(number)\n    threading.Event().wait(0.2)\n'done'"
    body = {"code": code, "poolRef": {"name": pool}}
    link = gateway.client.post("/v1/executions", params={"wait": "0"}, json=body).headers["location"]
    first: list[tuple[str, str, dict[str, Any]]] = []
    with gateway.client.stream("GET", f"{link}/events") as response:
        for event in read_events(response.iter_lines()):
            first.append(event)
            if "3" in text_of(first):
                break
    with gateway.client.stream("GET", f"{link}/events", headers={"Last-Event-ID": first[-1][0]}) as response:
        rest = list(read_events(response.iter_lines()))
    everything = "".join(f"{number}\n" for number in range(8))
    assert text_of(first) + text_of(rest) == everything
    assert rest[-1][1] == "end"
    assert rest[-1][2]["phase"] == "Succeeded"
    # The pod is gone: the same stream comes from the status.
    with gateway.client.stream("GET", f"{link}/events") as response:
        assert text_of(list(read_events(response.iter_lines()))) == everything
    with gateway.client.stream("GET", f"{link}/events", headers={"Last-Event-ID": first[-1][0]}) as response:
        assert text_of(first) + text_of(list(read_events(response.iter_lines()))) == everything


def test_a_key_works_from_when_it_is_added_until_it_is_removed(installed: Cluster, url: str) -> None:
    key = f"mcpx_{uuid.uuid4().hex}"
    entry = json.dumps({"sha256": hashlib.sha256(key.encode()).hexdigest(), "namespace": NAMESPACE})
    data = {"data": {"temporary": base64.b64encode(entry.encode()).decode()}}
    headers = {"Authorization": f"Bearer {key}"}
    secret = f"{RELEASE}-api-keys"

    def status() -> int:
        return httpx.get(f"{url}/v1/executions", headers=headers).status_code

    assert status() == 401
    installed.merge("Secret", secret, data, namespace=SYSTEM)
    eventually(lambda: status() == 200, seconds=15, what="the new key works")
    installed.merge("Secret", secret, {"data": {"temporary": None}}, namespace=SYSTEM)
    eventually(lambda: status() == 401, seconds=15, what="the removed key is refused")


def account(name: str, namespace: str, *verbs: str) -> list[dict[str, Any]]:
    """A service account that has these verbs on executions in `agents`."""
    metadata = {"name": name, "namespace": NAMESPACE}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        {
            "apiVersion": rbac,
            "kind": "Role",
            "metadata": metadata,
            "rules": [
                {"apiGroups": ["mcp-exec.dev"], "resources": ["codeexecutions"], "verbs": list(verbs) or ["none"]}
            ],
        },
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


def token(cluster: Cluster, name: str, namespace: str, *, audiences: tuple[str, ...] = ("mcp-exec",)) -> dict[str, str]:
    """Return the header with a token for the gateway; for the API server if there are no audiences."""
    spec = V1TokenRequestSpec(audiences=list(audiences), expiration_seconds=3600)
    request = AuthenticationV1TokenRequest(spec=spec)
    made = CoreV1Api(cluster.objects.api).create_namespaced_service_account_token(name, namespace, request)
    return {"Authorization": f"Bearer {made.status.token}"}


def test_a_service_account_may_what_its_role_says_and_no_more(installed: Cluster, url: str) -> None:
    installed.apply(
        *account("runner", NAMESPACE, "create", "get", "list", "watch", "patch", "delete"),
        *account("reader", NAMESPACE, "get", "list"),
        *account("stranger", "default"),
    )
    runner, reader = token(installed, "runner", NAMESPACE), token(installed, "reader", NAMESPACE)
    stranger = token(installed, "stranger", "default")
    body = {"code": "print('by token')"}
    done = httpx.post(f"{url}/v1/executions", json=body, headers=runner, timeout=paced(60))
    assert (done.status_code, done.json()["output"]["stdout"]) == (200, "by token\n")
    assert httpx.get(f"{url}/v1/executions", headers=reader).status_code == 200
    assert httpx.post(f"{url}/v1/executions", json=body, headers=reader).status_code == 403
    assert httpx.get(f"{url}/v1/executions", headers=stranger).status_code == 403
    for_the_api_server = token(installed, "reader", NAMESPACE, audiences=())
    assert httpx.get(f"{url}/v1/executions", headers=for_the_api_server).status_code == 401
    there = {"namespace": NAMESPACE}
    assert httpx.get(f"{url}/v1/executions", params=there, headers=stranger).status_code == 403
