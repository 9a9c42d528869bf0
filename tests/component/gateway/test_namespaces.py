"""Every route with a caller stays in the caller's namespace. Routes are read from the application."""

import json

from tests.component.gateway.conftest import CEX, KEY, OTHER_KEY, SECRETS, Gateway, key_entry, keys_secret, serving
from tests.support.api_server import FakeApiServer
from tests.support.until import until

from mcp_exec_gateway.app import build_app

OPEN = {"/healthz", "/readyz", "/docs", "/openapi.json"}
BOSS, OTHER_BOSS = "mcpx_boss", "mcpx_other_boss"


def list_requests(gateway: Gateway, name: str) -> list[tuple[str, str]]:
    """Return method and path of each route, for this execution."""
    paths = build_app(gateway.dependencies).openapi()["paths"]
    return [
        (method.upper(), path.replace("{name}", name).replace("{id}", "a1"))
        for path, operations in paths.items()
        if path not in OPEN and not path.startswith("/v1/artifacts/")  # its credential is the signature
        for method in operations
    ]


async def test_no_route_shows_or_changes_what_is_in_another_namespace(api: FakeApiServer) -> None:
    entries = {
        "team-a": key_entry(KEY),
        "team-b": key_entry(OTHER_KEY, "others"),
        "boss": {**key_entry(BOSS), "approver": True},
        "other-boss": {**key_entry(OTHER_BOSS, "others"), "approver": True},
    }
    api.put(SECRETS, keys_secret(**entries))
    async with serving(api) as gateway:
        await until(lambda: gateway.dependencies.keys.find(OTHER_BOSS) is not None)
        name = (await gateway.post({"code": "SECRET_CODE"}, "?wait=0")).json["name"]
        approval = {"id": "a1", "tool": "SECRET.TOOL", "arguments": "{}", "state": "Pending"}
        times = {"requestedAt": "2026-11-21T20:00:00Z", "expiresAt": "2099-11-21T20:00:00Z"}
        api.merge(CEX, name, {"status": {"phase": "Running", "approvals": [approval | times]}})
        before = json.dumps(gateway.executions[name])
        requests = list_requests(gateway, name)
        assert len(requests) >= 9
        for method, path in requests:
            body = {"decision": "Approve"} if "approvals/" in path else {"code": "1"}
            options = {"json": body} if method in ("POST", "PUT") else {}
            for key in (OTHER_KEY, OTHER_BOSS):
                named = await gateway.ask(method, f"{path}?namespace=agents", key=key, **options)
                assert named.status == 403, (method, path)
                own = await gateway.ask(method, path, key=key, **options)
                assert "SECRET" not in named.text + own.text
                assert f'"{name}"' not in own.text or own.status in (403, 404), (method, path)
            anonymous = await gateway.ask(method, path, key=None, **options)
            assert anonymous.status == 401
        assert json.dumps(gateway.executions[name]) == before
        # a key that is no approver's decides on nothing in its own namespace either
        answer = await gateway.ask("POST", f"/v1/executions/{name}/approvals/a1", json={"decision": "Approve"})
        assert answer.status == 403
        assert json.dumps(gateway.executions[name]) == before
