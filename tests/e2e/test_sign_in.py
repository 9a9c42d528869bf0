"""Sign-in of people at identity providers in the cluster, by the MCP SDK's OAuth client and by their tokens."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx
import pytest
from hack import identity_provider
from hack.identity_provider import CORP, PORTS, SCOPES, Installed
from mcp.shared.auth import OAuthClientInformationFull

from tests.e2e.providers import Provider
from tests.e2e.support import NAMESPACE, RELEASE, ROOT, SYSTEM, Cluster
from tests.support.pace import paced
from tests.support.sign_in import (
    FIRST_SECONDS,
    FORGETFUL,
    Browser,
    Storage,
    connected,
    registered,
    run_by,
    sign_in,
)
from tests.support.until import eventually, until_answered

pytestmark = pytest.mark.timeout(600)
SECOND: Final = "agents-second"
PARTNER: Final = "partner"
ELSEWHERE: Final = "elsewhere"
"""A provider that the gateway does not know."""
RULES: Final = [
    {"groups": [f"oidc/{CORP}/leads"], "namespaces": [NAMESPACE, SECOND]},
    {"groups": [f"oidc/{CORP}/developers"], "namespaces": [NAMESPACE]},
    {"users": [f"oidc/{PARTNER}/alice"], "namespaces": [NAMESPACE]},
]
GATEWAYS: Final = "app.kubernetes.io/component=gateway"
"""One that ends still answers for some seconds, without the issuers."""
KEYS_SECONDS: Final = 35
"""The gateway reads the keys of an issuer for an unknown key id every 30 seconds at most."""
CODE: Final = "import threading\nwhile True:\n    print('on', flush=True)\n    threading.Event().wait(0.2)"


@pytest.fixture(scope="module")
def providers(installed: Cluster, provider: Provider) -> Iterator[dict[str, Installed]]:
    if provider.name == "existing":
        pytest.skip("an identity provider needs a cluster of kind or devcluster")
    identity_provider.load_image()
    yield {name: identity_provider.install(name) for name in PORTS}
    installed.delete("Namespace", identity_provider.NAMESPACE, namespace=None)


@pytest.fixture(scope="module")
def resource(
    installed: Cluster, url: str, providers: dict[str, Installed], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of `/mcp` of a gateway that accepts two of the providers."""
    issuers = [providers[name].configure(name) | {"clockSkewSeconds": 0} for name in (CORP, PARTNER)]
    public_url = str(httpx.URL(url))  # without the default port, as in the metadata
    gateway = {"publicUrl": public_url, "oidc": {"issuers": issuers, "scopes": SCOPES}, "rules": RULES}
    file = tmp_path_factory.mktemp("values") / "values.json"
    file.write_text(json.dumps({"namespaces": [NAMESPACE, SECOND], "gateway": gateway}))
    try:
        installed.helm(
            "upgrade", RELEASE, str(ROOT / "charts/mcp-exec"), "--namespace", SYSTEM, "--reuse-values",
            "--values", str(file), "--wait", "--timeout", "4m",
        )  # fmt: skip
        eventually(
            lambda: not any(map(is_ending, installed.select("Pod", namespace=SYSTEM, labels=GATEWAYS))), seconds=120
        )
        yield f"{public_url}/mcp"
    finally:
        # while the operator serves the namespace, it removes its finalizers there
        installed.delete("Namespace", SECOND, namespace=None, seconds=240)
        installed.helm("rollback", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout", "4m")


@pytest.fixture
def corp(providers: dict[str, Installed]) -> Installed:
    return providers[CORP]


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=paced(120), trust_env=False) as client:
        yield client


def list_gateways(installed: Cluster) -> list[dict[str, Any]]:
    return installed.select("Pod", namespace=SYSTEM, labels=GATEWAYS)


def is_ending(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("client", [registered(), None], ids=["pre-registered", "dynamic registration"])
async def test_a_client_that_knows_only_the_address_signs_its_user_in_and_runs_code_in_gvisor(
    installed: Cluster,
    runtimes: dict[str, str | None],
    resource: str,
    corp: Installed,
    client: OAuthClientInformationFull | None,
) -> None:
    assert installed.get("SandboxPool", "default")["spec"].get("runtimeClassName") == runtimes.get("gvisor")
    description = f"by {client.client_id if client else 'a new client'} at {time.time()}"
    browser, storage = Browser(corp, "alice"), Storage(client)
    async with connected(resource, browser, storage) as connection:
        result = await run_by(connection, "1 + 1", description=description)
    assert (result["phase"], result["result"]) == ("Succeeded", 2)
    assert storage.client is not None
    assert (storage.client.client_id == "known") == (client is not None)
    listed = installed.kubectl("get", "cex", "-n", NAMESPACE, "-o", "wide").splitlines()
    (row,) = [line for line in listed if description in line]
    assert "CALLER" in listed[0]
    assert f" oidc/{CORP}/alice " in row


@pytest.mark.parametrize(
    ("person", "namespace", "status"),
    [
        ("alice", NAMESPACE, 200),
        ("alice", SECOND, 403),
        ("bob", NAMESPACE, 403),
        ("bob", None, 403),
        ("carol", NAMESPACE, 200),
        ("carol", SECOND, 200),
    ],
)
async def test_people_reach_the_namespaces_of_their_rule_and_are_told_what_others_lack(
    http: httpx.AsyncClient, resource: str, corp: Installed, person: str, namespace: str | None, status: int
) -> None:
    headers = bearing(await sign_in(Browser(corp, person), resource=resource))
    parameters = {"namespace": namespace} if namespace else {}
    listed = await http.get("/v1/executions", params=parameters, headers=headers)
    assert listed.status_code == status, listed.text
    if status == 403:
        refused = await http.post("/v1/executions", json={"code": "1"}, params=parameters, headers=headers)
        wanted = f"no access rule lets oidc/{CORP}/{person} into {namespace or 'any namespace'};"
        assert (refused.status_code, wanted in refused.json()["detail"]) == (403, True), refused.text


async def test_a_token_that_ended_is_refused_and_the_client_gets_another_without_its_user(
    http: httpx.AsyncClient, resource: str, corp: Installed
) -> None:
    browser, storage = Browser(corp, "alice"), Storage(registered(FORGETFUL))
    async with connected(resource, browser, storage) as connection:
        await run_by(connection)
        assert storage.tokens is not None
        first, signed_in = storage.tokens.access_token, len(browser.visited)
        end = time.time() + FIRST_SECONDS

        async def ended() -> httpx.Response | None:
            answer = await http.post("/mcp", json={}, headers=bearing(first))
            return answer if answer.status_code == 401 and time.time() > end else None

        refused = await until_answered(ended, every=0.5, seconds=paced(30))
        assert 'resource_metadata="' in refused.headers["www-authenticate"]
        assert (await run_by(connection))["phase"] == "Succeeded"
    assert (storage.tokens.access_token != first, len(browser.visited)) == (True, signed_in)


async def test_a_run_goes_on_while_its_provider_replaces_its_key_and_new_tokens_are_accepted(
    http: httpx.AsyncClient, resource: str, corp: Installed
) -> None:
    browser = Browser(corp, "alice")
    first = bearing(await sign_in(browser, resource=resource))
    body = {"code": CODE, "timeoutSeconds": 240}
    started = await http.post("/v1/executions", params={"wait": "0"}, json=body, headers=first)
    link = started.headers["location"]
    before = await corp.read_key_ids()
    async with http.stream("GET", f"{link}/events", headers=first) as response:
        lines = response.aiter_lines()
        await read_until(lines, "on")
        await asyncio.to_thread(identity_provider.rotate_key, CORP)

        async def replaced() -> bool | None:
            return before.isdisjoint(await corp.read_key_ids()) or None

        await until_answered(replaced, every=0.2, seconds=paced(30))
        second = bearing(await sign_in(browser, resource=resource))

        async def accepted() -> bool | None:
            return (await http.get(link, headers=second)).status_code == 200 or None

        await until_answered(accepted, every=1, seconds=KEYS_SECONDS)
        assert (await http.get(link, headers=first)).status_code == 401, "its key is gone"
        await read_until(lines, "on")
        assert (await http.delete(link, headers=second)).status_code == 202
        await read_until(lines, "Cancelled")


async def read_until(lines: AsyncIterator[str], wanted: str) -> None:
    """Read a stream of events to the next line with a text."""
    async with asyncio.timeout(paced(60)):
        async for line in lines:
            if line.startswith("data:") and wanted in line:
                return
    raise AssertionError(f"the stream ended without {wanted}")


@pytest.mark.parametrize(("name", "status"), [(PARTNER, 200), (ELSEWHERE, 401)])
async def test_tokens_of_configured_issuers_are_accepted_and_no_others(
    http: httpx.AsyncClient, resource: str, providers: dict[str, Installed], name: str, status: int
) -> None:
    token = await sign_in(Browser(providers[name], "alice"), resource=resource)
    response = await http.post("/v1/executions", json={"code": "1"}, headers=bearing(token))
    assert response.status_code == status, response.text
    if status == 200:
        assert response.json()["caller"].startswith(f"oidc.{name}.alice-")
