"""Skills on a real cluster: saved by one caller, approved by another, run by a third; and the shipped ones."""

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mcp_exec_api.constants import LABEL_SHIPPED
from tests.e2e.support import NAMESPACE, Cluster, Gateway, eventually
from tests.e2e.toolservers import approver, patch_keys
from tests.support.pace import paced
from tests.support.shipped_skills import NAMES, build_examples, check_answers

CODE = "total = sum(row['n'] for row in rows)\nprint('rows', len(rows))\ntotal"
SAVES = '''
from skills import save_skill, search_skills
def run(text: str) -> str:
    """Turn a text around."""
    return text[::-1]
save_skill("e2e-reverse", run, "Turn a text around.")
[each["name"] for each in search_skills("sum of rows")]
'''


@pytest.fixture(scope="module")
def reviewer(installed: Cluster, url: str) -> Iterator[httpx.Client]:
    with approver(installed, url) as client:
        yield client


@pytest.fixture(scope="module")
def third(installed: Cluster, url: str) -> Iterator[Gateway]:
    """A caller who is neither author nor approver."""
    key = f"mcpx_{secrets.token_urlsafe(32)}"
    entry = {"sha256": hashlib.sha256(key.encode()).hexdigest(), "namespace": NAMESPACE}
    patch_keys(installed, {"skills-third": base64.b64encode(json.dumps(entry).encode()).decode()})
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=paced(60), trust_env=False) as client:
        eventually(lambda: client.get("/v1/executions").status_code == 200, what="the new key is known")
        yield Gateway(client=client)
    patch_keys(installed, {"skills-third": None})


@pytest.fixture(scope="module", autouse=True)
def no_skills(installed: Cluster) -> Iterator[None]:
    yield
    installed.delete("Skill", *installed.names("Skill", labels=f"!{LABEL_SHIPPED}"))


def ask(client: httpx.Client, method: str, path: str, status: int, **options: Any) -> Any:
    response = client.request(method, path, **options)
    assert response.status_code == status, response.text
    return response.json() if response.content and "json" in response.headers["content-type"] else response.content


def run_skill(gateway: Gateway, pool: str, name: str, **context: Any) -> dict[str, Any]:
    body = {"skillRef": {"name": name}, "context": context, "poolRef": {"name": pool}}
    return dict(ask(gateway.client, "POST", "/v1/executions?wait=90", 200, json=body))


def test_a_run_becomes_a_skill_that_is_approved_run_by_another_exported_and_imported(
    installed: Cluster, gateway: Gateway, reviewer: httpx.Client, third: Gateway, pool: str
) -> None:
    name, rows = f"e2e-total-{pool}", [{"n": 2}, {"n": 5}]
    done = gateway.run(CODE, poolRef={"name": pool}, context={"rows": rows})
    new = {"name": name, "description": "Sum of rows.", "fromExecution": done["name"]}
    saved = ask(gateway.client, "POST", "/v1/skills", 201, json=new)
    path = f"/v1/skills/{name}/versions/1"
    assert (saved["state"], saved["provenance"]["execution"]) == ("Draft", done["name"])
    assert run_skill(gateway, pool, name, rows=rows)["output"]["result"] == 7
    refused = run_skill(third, pool, name, rows=rows)
    assert (refused["phase"], refused["reason"]) == ("Failed", "Rejected")
    assert "must be approved" in refused["error"]["message"]
    ask(third.client, "POST", f"{path}/approve", 403, json={"digest": saved["digest"]})
    approved = ask(reviewer, "POST", f"{path}/approve", 200, json={"digest": saved["digest"]})
    assert approved["state"] == "Approved"
    ran = run_skill(third, pool, name, rows=rows)
    assert (ran["output"]["result"], ran["skills"]["used"]) == (7, [f"{name}-v1"])
    module = name.replace("-", "_")
    code = f"from skills.{module} import run\nawait run(rows={rows!r})"
    assert third.run(code, poolRef={"name": pool})["output"]["result"] == 7

    def counted() -> bool:
        status = installed.get("Skill", f"{name}-v1").get("status", {})
        return (status.get("uses"), status.get("successes"), status.get("state")) == (3, 3, "Approved")

    eventually(counted, seconds=30, every=0.5, what="the uses are counted")
    archive = ask(third.client, "GET", f"{path}/archive", 200)
    ask(reviewer, "DELETE", path, 204)
    imported = {"archive": base64.b64encode(archive).decode()}
    again = ask(gateway.client, "POST", "/v1/skills", 201, json=imported)
    assert (again["name"], again["state"], again["provenance"]["source"]) == (name, "Draft", "Folder")
    again_path = f"/v1/skills/{name}/versions/{again['version']}"
    ask(reviewer, "POST", f"{again_path}/approve", 200, json={"digest": again["digest"]})
    assert run_skill(third, pool, name, rows=rows)["output"]["result"] == 7
    learned = gateway.run(SAVES, poolRef={"name": pool})
    assert module in learned["output"]["result"], str(learned)
    (draft,) = learned["skills"]["saved"]
    assert draft.startswith("e2e-reverse-v")
    assert run_skill(gateway, pool, "e2e-reverse", text="abc")["output"]["result"] == "cba"
    assert run_skill(third, pool, "e2e-reverse", text="abc")["reason"] == "Rejected"
    ask(reviewer, "DELETE", again_path, 204)


def test_the_skills_of_the_release_are_there_and_return_what_they_should(
    gateway: Gateway, third: Gateway, pool: str
) -> None:
    def are_there() -> bool:
        found = ask(third.client, "GET", "/v1/skills?state=Approved&limit=500", 200)["items"]
        return set(NAMES) <= {skill["name"] for skill in found if skill["author"] == "release:mcp-exec"}

    eventually(are_there, seconds=30, what="the release's skills")
    ran = run_skill(third, pool, "text-statistics", text="one two. three")
    (used,) = ran["skills"]["used"]  # its version depends on the releases that this cluster has had
    assert (ran["output"]["result"]["words"], used.partition("-v")[0]) == (3, "text-statistics"), str(ran)
    done = gateway.run(build_examples(), poolRef={"name": pool})
    assert done["phase"] == "Succeeded", str(done)
    check_answers(done["output"]["result"])
    assert len(done["skills"]["used"]) == len(NAMES) - 1
