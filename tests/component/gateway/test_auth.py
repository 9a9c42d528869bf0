"""Who may call: API keys, which follow their Secret, and ServiceAccount tokens, which the API server reviews."""

import asyncio
import base64
import json
import logging
import time

import pytest
from multidict import CIMultiDict
from tests.component.gateway.conftest import KEY, OTHER_KEY, SECRETS, Gateway, key_entry, keys_secret, serving
from tests.support.api_server import FakeApiServer, Fault
from tests.support.until import until

BOT = "system:serviceaccount:agents:bot"


def token(name: str = "bot", expires_in: float = 600) -> str:
    return unsigned_token(time.time() + expires_in, name)


def unsigned_token(expires: float, name: str = "bot") -> str:
    parts = [{"alg": "none"}, {"sub": name, "exp": expires}]
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), "x"]
    )


def allow(api: FakeApiServer, *verbs: str, namespace: str = "agents", user: str = BOT) -> str:
    made = token(user)
    api.users[made] = user
    api.rights |= {(user, verb, namespace) for verb in verbs}
    return made


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {KEY}",
        KEY,
        "Bearer mcpx_" + "x" * 43,
        "Bearer nonsense",
        "Bearer a.b.c",
        "Bearer " + unsigned_token(10**400),
        "Bearer é",
        "Bearer x." + base64.urlsafe_b64encode(b"[" * 12000).decode().rstrip("=") + ".x",
        "Bearer x." + base64.urlsafe_b64encode(b'{"exp": 1e999}').decode().rstrip("=") + ".x",
        "Bearer x." + base64.urlsafe_b64encode(b'{"exp": NaN}').decode().rstrip("=") + ".x",
        "Bearer x." + base64.urlsafe_b64encode(b'{"sub": "\xff"}').decode().rstrip("=") + ".x",
    ],
)
async def test_credentials_that_are_not_good_get_401_before_all_else(
    gateway: Gateway, api: FakeApiServer, header: str
) -> None:
    answer = await gateway.post(b"{", "?nope=1", key=None, headers={"Authorization": header} if header else {})
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer.json["type"] == "urn:mcp-exec:problem:unauthenticated"
    assert answer.json["detail"] == "send 'Authorization: Bearer ' with a valid API key or token"
    assert api.asked("POST", "/tokenreviews") == []


async def test_a_key_is_fixed_to_its_namespace(gateway: Gateway) -> None:
    assert (await gateway.post(query="?wait=0&namespace=agents")).status == 202
    answer = await gateway.post(query="?wait=0&namespace=others")
    assert answer.status == 403
    assert "agents" in answer.json["detail"]
    assert len(gateway.executions) == 1


async def test_a_key_of_a_namespace_that_is_not_served_is_told_so(gateway: Gateway, api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(lost=key_entry("mcpx_lost", "elsewhere")))
    await until(lambda: gateway.dependencies.keys.find("mcpx_lost") is not None)
    answer = await gateway.post(key="mcpx_lost")
    assert answer.status == 403
    assert "elsewhere" in answer.json["detail"]


async def test_keys_come_and_go_with_their_secret(gateway: Gateway, api: FakeApiServer) -> None:
    keys = gateway.dependencies.keys
    api.put(SECRETS, keys_secret(new=key_entry("mcpx_new")))
    await until(lambda: keys.find("mcpx_new") is not None)
    assert (await gateway.post(query="?wait=0", key="mcpx_new")).status == 202
    assert (await gateway.post(query="?wait=0")).status == 401
    api.remove(SECRETS, "api-keys")
    await until(lambda: keys.find("mcpx_new") is None)
    assert (await gateway.post(query="?wait=0", key="mcpx_new")).status == 401


async def test_a_key_that_is_revoked_while_the_watch_is_broken_stops_too(gateway: Gateway, api: FakeApiServer) -> None:
    api.watches_allowed.clear()
    api.remove(SECRETS, "api-keys")
    api.faults.append(Fault("GET", "/secrets", 410))
    api.drop_watches()
    api.watches_allowed.set()
    await until(lambda: gateway.dependencies.keys.find(KEY) is None)
    assert (await gateway.post()).status == 401


async def test_a_malformed_key_is_left_out_by_name_and_the_others_work(
    gateway: Gateway, api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    good = key_entry("mcpx_good")
    broken = {
        "no-json": "{",
        "no-digest": {"namespace": "agents"},
        "bad-digest": {**good, "sha256": "xyz"},
        "unknown-field": {**good, "extra": 1},
        "bad-limit": {**good, "limits": {"maxConcurrent": 0}},
        "system.serviceaccount.agents.bot": good,
        "zz-the-same": good,
    }
    with caplog.at_level(logging.WARNING, logger="mcp_exec_gateway.core.auth.api_keys"):
        api.put(SECRETS, keys_secret(good=good, **broken))
        await until(lambda: gateway.dependencies.keys.find("mcpx_good") is not None)
    assert (await gateway.post(query="?wait=0", key="mcpx_good")).json["caller"] == "good"
    for name in broken:
        assert f"API key {name} is skipped" in caplog.text
    assert good["sha256"] not in caplog.text


async def test_a_service_account_works_in_its_own_namespace(gateway: Gateway, api: FakeApiServer) -> None:
    bot = allow(api, "create", "get", "list", "patch")
    made = await gateway.post(query="?wait=0", key=bot)
    assert made.status == 202
    assert made.json["caller"] == "system.serviceaccount.agents.bot"
    path = f"/v1/executions/{made.json['name']}"
    assert (await gateway.ask("GET", path, key=bot)).status == 200
    assert len((await gateway.ask("GET", "/v1/executions", key=bot)).json["items"]) == 1
    assert (await gateway.ask("DELETE", path, key=bot)).status == 202


@pytest.mark.parametrize(
    ("verb", "method", "path"),
    [
        ("create", "POST", "/v1/executions"),
        ("list", "GET", "/v1/executions"),
        ("get", "GET", "/v1/executions/exec-a"),
        ("get", "GET", "/v1/executions/exec-a/events"),
        ("get", "GET", "/v1/executions/exec-a/approvals"),
        ("list", "GET", "/api/v1/mcp/tools/search"),
        ("list", "GET", "/api/v1/mcp/servers/github/tools"),
        ("list", "GET", "/v1/audit"),
        ("patch", "DELETE", "/v1/executions/exec-a"),
    ],
)
async def test_each_route_asks_for_its_own_verb(
    gateway: Gateway, api: FakeApiServer, verb: str, method: str, path: str
) -> None:
    bot = allow(api, *({"create", "get", "list", "patch"} - {verb}))
    answer = await gateway.ask(method, path, key=bot)
    assert answer.status == 403
    assert f"may not {verb} codeexecutions.mcp-exec.dev in namespace agents" in answer.json["detail"]
    assert gateway.executions == {}


async def test_a_service_account_may_name_another_namespace(gateway: Gateway, api: FakeApiServer) -> None:
    bot = allow(api, "create", "get", namespace="others")
    api.put("/apis/mcp-exec.dev/v1beta1/namespaces/others/sandboxpools", {"metadata": {"name": "default"}, "spec": {}})
    await until(lambda: gateway.dependencies.pools.list_names("others") == ["default"])
    made = await gateway.post(query="?wait=0&namespace=others", key=bot)
    assert (made.status, made.json["namespace"]) == (202, "others")
    assert made.headers["Location"].endswith("?namespace=others")
    assert (await gateway.ask("GET", made.headers["Location"], key=bot)).status == 200
    assert (await gateway.post(query="?wait=0", key=bot)).status == 403
    assert (await gateway.post(query="?namespace=kube-system", key=bot)).status == 403


async def test_a_service_account_of_a_namespace_that_is_not_served_must_name_one(
    gateway: Gateway, api: FakeApiServer
) -> None:
    bot = allow(api, "list", user="system:serviceaccount:ci:bot")
    answer = await gateway.ask("GET", "/v1/executions", key=bot)
    assert (answer.status, "ci" in answer.json["detail"]) == (403, True)
    assert (await gateway.ask("GET", "/v1/executions?namespace=agents", key=bot)).status == 200


async def test_a_service_account_that_may_create_executions_may_name_any_user_as_it_may_in_kubernetes(
    gateway: Gateway, api: FakeApiServer
) -> None:
    made = await gateway.post({"code": "1", "user": "u-42"}, "?wait=0", key=allow(api, "create"))
    assert (made.status, gateway.executions[made.json["name"]]["spec"]["user"]) == (202, "u-42")


@pytest.mark.parametrize("user", ["alice", "alice@example.com", "team-a"])
async def test_a_person_whom_the_cluster_authenticates_has_its_rights_in_kubernetes(
    gateway: Gateway, api: FakeApiServer, user: str
) -> None:
    person = allow(api, "create", "list", user=user)
    made = await gateway.post(query="?wait=0&namespace=agents", key=person)
    assert (made.status, made.json["caller"].startswith("k8s.")) == (202, True)
    assert (await gateway.ask("GET", "/v1/executions?namespace=others", key=person)).status == 403
    refused = await gateway.ask("GET", "/v1/executions", key=person)
    assert (refused.status, f"k8s/{user}" in refused.json["detail"]) == (403, True)


@pytest.mark.parametrize("user", ["system:anonymous", "a" * 241, "a\nb", ""])
async def test_a_name_that_can_not_own_anything_is_no_caller(gateway: Gateway, api: FakeApiServer, user: str) -> None:
    person = allow(api, "list", user=user)
    assert (await gateway.ask("GET", "/v1/executions?namespace=agents", key=person)).status == 401


async def test_people_may_have_the_audience_of_the_api_server_and_service_accounts_may_not(api: FakeApiServer) -> None:
    bot, person = allow(api, "list"), allow(api, "list", user="alice")
    api.audiences = ["https://kubernetes.default.svc"]
    async with serving(api, people_audience="https://kubernetes.default.svc") as gateway:
        assert (await gateway.ask("GET", "/v1/executions?namespace=agents", key=person)).status == 200
        assert (await gateway.ask("GET", "/v1/executions?namespace=agents", key=bot)).status == 401


async def test_answers_about_tokens_are_remembered(gateway: Gateway, api: FakeApiServer) -> None:
    bot = allow(api, "list")
    answers = await asyncio.gather(*(gateway.ask("GET", "/v1/executions", key=bot) for _ in range(8)))
    assert {answer.status for answer in answers} == {200}
    assert len(api.asked("POST", "/tokenreviews")) == 1
    assert len(api.asked("POST", "/subjectaccessreviews")) == 1


async def test_a_token_past_its_end_is_not_even_asked_about(gateway: Gateway, api: FakeApiServer) -> None:
    old = token(expires_in=-1)
    api.users[old] = BOT
    assert (await gateway.ask("GET", "/v1/executions", key=old)).status == 401
    assert api.asked("POST", "/tokenreviews") == []


async def test_a_token_for_the_api_server_is_none_for_the_gateway(api: FakeApiServer) -> None:
    """Whoever saw it on its way to the gateway could use all rights of its account."""
    bot = allow(api, "list")
    api.audiences = ["https://kubernetes.default.svc.cluster.local"]
    async with serving(api) as gateway:
        assert (await gateway.ask("GET", "/v1/executions", key=bot)).status == 401
    assert api.asked("POST", "/tokenreviews")[0].body["spec"]["audiences"] == ["mcp-exec"]
    api.audiences = ["mcp-exec"]
    async with serving(api) as gateway:
        assert (await gateway.ask("GET", "/v1/executions", key=bot)).status == 200


async def test_the_audience_can_be_another(api: FakeApiServer) -> None:
    bot = allow(api, "list")
    for audience, status in (("another-release", 401), ("mcp-exec", 200)):
        async with serving(api, audience=audience) as gateway:
            assert (await gateway.ask("GET", "/v1/executions", key=bot)).status == status


async def test_an_api_server_that_can_not_say_is_503_and_not_remembered(gateway: Gateway, api: FakeApiServer) -> None:
    bot = allow(api, "list")
    api.faults.append(Fault("POST", "/tokenreviews", 403))
    answer = await gateway.ask("GET", "/v1/executions", key=bot)
    assert (answer.status, "Retry-After" in answer.headers) == (503, True)
    assert (await gateway.ask("GET", "/v1/executions", key=bot)).status == 200


async def test_credentials_are_never_logged(
    gateway: Gateway, api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    bot = allow(api, "create")
    with caplog.at_level(logging.DEBUG):
        for key in (KEY, OTHER_KEY, bot, "mcpx_unknown"):
            await gateway.post({"code": "SECRET_CODE"}, "?wait=0", key=key)
        api.faults.append(Fault("POST", "/subjectaccessreviews", 500))
        await gateway.ask("GET", "/v1/executions", key=bot)
    said = "\n".join(str(record.__dict__) for record in caplog.records if record.name.startswith("mcp_exec"))
    assert "team-a" in said
    for secret in (KEY, OTHER_KEY, bot, "mcpx_unknown", "SECRET_CODE"):
        assert secret not in said


async def test_two_authorization_headers_are_not_accepted(gateway: Gateway) -> None:
    headers = CIMultiDict([("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer mcpx_other")])
    async with gateway.session.get(f"{gateway.url}/v1/executions", headers=headers) as answer:
        assert answer.status == 401


async def test_reviews_are_bounded_and_a_flood_of_tokens_does_not_delay_those_in_use(
    gateway: Gateway, api: FakeApiServer
) -> None:
    bot = allow(api, "list")
    assert (await gateway.ask("GET", "/v1/executions", key=bot)).status == 200
    tokens = gateway.dependencies.callers.authenticator.tokens
    gateway.dependencies.callers.peer_limiter.per_minute = 10_000
    api.hanging.add("/tokenreviews")
    flood = [asyncio.create_task(gateway.ask("GET", "/v1/executions", key=token(f"bot-{n}"))) for n in range(200)]
    bound = tokens.token_reviews.max_running + tokens.token_reviews.max_waiting
    await until(lambda: sum(task.done() for task in flood) == 200 - bound)
    assert {task.result().status for task in flood if task.done()} == {503}
    assert all("Retry-After" in task.result().headers for task in flood if task.done())
    assert len(api.asked("POST", "/tokenreviews")) <= 1 + tokens.token_reviews.max_running
    assert (await gateway.ask("GET", "/v1/executions", key=bot)).status == 200
    assert (await gateway.ask("GET", "/v1/executions")).status == 200
    for task in flood:
        task.cancel()


async def test_a_review_that_the_api_server_does_not_answer_ends(gateway: Gateway, api: FakeApiServer) -> None:
    gateway.dependencies.callers.authenticator.tokens.token_reviews.seconds = 0.05
    api.hanging.add("/tokenreviews")
    answer = await gateway.ask("GET", "/v1/executions", key=allow(api, "list"))
    assert (answer.status, "Retry-After" in answer.headers) == (503, True)
    assert gateway.dependencies.callers.authenticator.tokens.token_reviews.count == 0


async def test_a_rejected_token_is_reviewed_once_and_displaces_no_valid_one(
    gateway: Gateway, api: FakeApiServer
) -> None:
    bot, bad = allow(api, "list"), token("nobody")
    gateway.dependencies.callers.authenticator.tokens.users.max_size = 1
    for key, status in ((bot, 200), (bad, 401), (bad, 401), (bot, 200)):
        assert (await gateway.ask("GET", "/v1/executions", key=key)).status == status
    assert len(api.asked("POST", "/tokenreviews")) == 2


async def test_requests_without_valid_credentials_are_bounded_by_address_and_valid_ones_are_not(
    api: FakeApiServer,
) -> None:
    bot = allow(api, "list")
    async with serving(api, anonymous_requests_per_minute=5) as gateway:
        gateway.stop_refills()
        assert (await gateway.ask("GET", "/v1/executions", key=bot)).status == 200
        for key in (None, "mcpx_guess", "a.b.c", token("nobody")):
            assert (await gateway.ask("GET", "/v1/executions", key=key)).status == 401
        assert (await gateway.ask("GET", "/nothing", key=None)).status == 404
        reviews = len(api.asked("POST", "/tokenreviews"))
        for path, key in (
            ("/v1/executions", None),
            ("/v1/executions", "mcpx_guess"),
            ("/v1/executions", token("somebody")),
            ("/nothing", None),
        ):
            answer = await gateway.ask("GET", path, key=key)
            assert (answer.status, answer.json["type"]) == (429, "urn:mcp-exec:problem:rate-limited")
            assert int(answer.headers["Retry-After"]) > 0
        assert len(api.asked("POST", "/tokenreviews")) == reviews
        assert (await gateway.ask("GET", "/healthz", key=None)).status == 200
        assert (await gateway.ask("GET", "/readyz", key=None)).status == 200
        for key in (KEY, bot):
            for _ in range(8):
                assert (await gateway.ask("GET", "/v1/executions", key=key)).status == 200


async def test_a_flood_does_not_lock_out_a_token_whose_review_is_due_again(api: FakeApiServer) -> None:
    bot, other = allow(api, "list"), allow(api, "list", user="system:serviceaccount:agents:other")
    async with serving(api, anonymous_requests_per_minute=5) as gateway:
        gateway.stop_refills()
        for key in (bot, other):
            assert (await gateway.ask("GET", "/v1/executions", key=key)).status == 200
        flood = [(await gateway.ask("GET", "/v1/executions", key=None)).status for _ in range(8)]
        assert flood[-1] == 429
        gateway.dependencies.callers.authenticator.tokens.users.clear()  # as after a minute
        assert (await gateway.ask("GET", "/v1/executions", key=bot)).status == 200
        assert len(api.asked("POST", "/tokenreviews")) == 3
        del api.users[other]
        statuses = [(await gateway.ask("GET", "/v1/executions", key=other)).status for _ in range(2)]
        assert statuses == [401, 429], "a token that is no longer valid is one of the flood"


async def test_clients_behind_a_trusted_proxy_have_a_limit_each(api: FakeApiServer) -> None:
    async with serving(api, anonymous_requests_per_minute=2, trusted_proxies="127.0.0.0/8") as gateway:
        gateway.stop_refills()

        async def ask(client: str) -> int:
            answer = await gateway.ask("GET", "/v1/executions", key=None, headers={"X-Forwarded-For": client})
            return int(answer.status)

        assert [await ask("192.0.2.1") for _ in range(3)] == [401, 401, 429]
        assert [await ask("192.0.2.1, 192.0.2.2") for _ in range(3)] == [401, 401, 429]


async def test_requests_that_a_key_may_not_make_count_for_its_rate(gateway: Gateway, api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, requestsPerMinute=2)}))
    await until(lambda: (found := gateway.dependencies.keys.find(KEY)) is not None and bool(found.limits.to_api()))
    gateway.stop_refills()
    statuses = [(await gateway.ask("GET", "/v1/executions?namespace=others")).status for _ in range(3)]
    assert statuses == [403, 403, 429]
