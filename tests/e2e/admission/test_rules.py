"""The rules of the CRDs, each tried for real, in a namespace that no release serves."""

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_api.meta import PATTERN_WORDS
from mcp_exec_tools.patterns import TOOL_PATTERN
from tests.e2e.support import Cluster

Object = dict[str, Any]

_names = itertools.count()
NOT_SERVED = "rules"

CODE: Object = {"code": "print(1)"}
POOL: Object = {"image": "i", "maxPods": 10}
URL: Object = {"url": "https://example.invalid/mcp"}
SECRET: Object = {"name": "s", "key": "k"}
SESSION: Object = {"name": "a", "user": "b", "resets": 1}
SKILL: Object = {"name": "a", "version": 1, "description": "d", "code": "def run(): ..."}
ARMS: list[Object] = [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code"}]
STAGE: Object = {"name": "few", "percent": 5, "durationSeconds": 60}
GUARD: Object = {"name": "errors", "metric": "errorRate", "threshold": 0.1}
ROLLOUT: Object = {"arms": ARMS, "control": "direct", "stages": [STAGE]}
STDIO: Object = {"stdio": {"image": "i", "command": ["c"]}}


@pytest.fixture(scope="module", autouse=True)
def namespace(installed: Cluster) -> Iterator[None]:
    installed.objects.create_namespace(NOT_SERVED)
    yield
    installed.delete("Namespace", NOT_SERVED, wait=False)


def of(plural: str, spec: Object) -> Object:
    kind = build_definitions()[plural]["spec"]["names"]["kind"]
    return {"apiVersion": "mcp-exec.dev/v1beta1", "kind": kind, "metadata": {"name": f"a{next(_names)}"}, "spec": spec}


def create(server: httpx.Client, plural: str, spec: Object) -> httpx.Response:
    path = f"/apis/mcp-exec.dev/v1beta1/namespaces/{NOT_SERVED}/{plural}?fieldValidation=Strict"
    return server.post(path, json=of(plural, spec))


def change(server: httpx.Client, plural: str, created: httpx.Response, spec: Object) -> httpx.Response:
    assert created.status_code == httpx.codes.CREATED, created.text
    name = created.json()["metadata"]["name"]
    return server.patch(
        f"/apis/mcp-exec.dev/v1beta1/namespaces/{NOT_SERVED}/{plural}/{name}",
        json={"spec": spec},
        headers={"Content-Type": "application/merge-patch+json"},
    )


def write_status(server: httpx.Client, plural: str, created: httpx.Response, status: Object) -> httpx.Response:
    assert created.status_code == httpx.codes.CREATED, created.text
    name = created.json()["metadata"]["name"]
    path = f"/apis/mcp-exec.dev/v1beta1/namespaces/{NOT_SERVED}/{plural}/{name}/status"
    return server.put(path, json=created.json() | {"status": status})


def refusal(answer: httpx.Response) -> str:
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY, answer.text
    message: str = answer.json()["message"]
    return message


CHANGES = [
    ({"code": "print(2)"}, "spec.code is immutable"),
    ({"poolRef": {"name": "other"}}, "spec.poolRef is immutable"),
    ({"timeoutSeconds": 31}, "spec.timeoutSeconds is immutable"),
    ({"limits": {"outputBytes": 2048}}, "spec.limits is immutable"),
    ({"priority": "High"}, "spec.priority is immutable"),
    ({"tools": ["expenses.*"]}, "spec.tools is immutable"),
    ({"user": "somebody"}, "spec.user is immutable"),
    ({"session": "another"}, "spec.session is immutable"),
    ({"workspace": {"name": "another"}}, "spec.workspace is immutable"),
    ({"skills": ["a"]}, "spec.skills is immutable"),
    ({"approvalTimeoutSeconds": 61}, "spec.approvalTimeoutSeconds is immutable"),
    ({"description": "another"}, "spec.description is immutable"),
    ({"language": "typescript"}, "spec.language is immutable"),
]
SKILL_CHANGES = [
    ({"name": "b"}, "spec.name is immutable: save another version"),
    ({"version": 2}, "spec.version is immutable: save another version"),
    ({"description": "e"}, "spec.description is immutable: save another version"),
    ({"code": "def run(): return 1"}, "spec.code is immutable: save another version"),
    ({"language": "typescript"}, "spec.language is immutable: save another version"),
    ({"instructions": "i"}, "spec.instructions is immutable: save another version"),
    ({"tools": ["expenses.*"]}, "spec.tools is immutable: save another version"),
    ({"tags": ["t"]}, "spec.tags is immutable: save another version"),
    ({"user": "somebody"}, "spec.user is immutable: save another version"),
    ({"provenance": {"source": "Code"}}, "spec.provenance is immutable: save another version"),
]
SESSION_CHANGES = [
    ({"name": "b"}, "spec.name of a session is immutable"),
    ({"poolRef": {"name": "other"}}, "spec.poolRef of a session is immutable"),
    ({"user": "somebody"}, "spec.user of a session is immutable"),
    ({"resets": 0}, "spec.resets cannot be lowered"),
]
ROLLOUT_CHANGES = [
    ({"arms": [ARMS[0], ARMS[1] | {"weight": 2}]}, "spec.arms of a rollout is immutable: create another rollout"),
    ({"control": "code"}, "spec.control of a rollout is immutable: create another rollout"),
    ({"stages": [STAGE | {"percent": 6}]}, "spec.stages of a rollout is immutable: create another rollout"),
    ({"salt": "another"}, "spec.salt of a rollout is immutable: create another rollout"),
    ({"killSwitch": False}, "spec.killSwitch cannot be set back to false: create another rollout"),
]
REFUSED = [
    *[
        ("codeexecutions", CODE | {"tools": [pattern]}, f"write {PATTERN_WORDS[TOOL_PATTERN]}")
        for pattern in ("github", "github/create")
    ],
    ("executionrollouts", ROLLOUT | {"control": "c"}, "spec.control must be the name of one of spec.arms"),
    ("executionrollouts", ROLLOUT | {"completeWith": "c"}, "spec.completeWith must be the name of one of spec.arms"),
    (
        "executionrollouts",
        ROLLOUT | {"stages": [STAGE | {"arm": "c"}]},
        "the arm of each of spec.stages must be the name of one of spec.arms",
    ),
    (
        "executionrollouts",
        ROLLOUT | {"promotedTo": "all"},
        "spec.promotedTo must be Completed or the name of one of spec.stages",
    ),
    ("executionrollouts", ROLLOUT | {"arms": [*ARMS, ARMS[0]]}, "spec.arms must have different names"),
    (
        "executionrollouts",
        ROLLOUT | {"arms": [arm | {"weight": 0} for arm in ARMS]},
        "one of spec.arms must have a weight above 0",
    ),
    ("executionrollouts", ROLLOUT | {"arms": [*ARMS, {"name": "c"}]}, "an arm needs a mode, a pool or both"),
    ("executionrollouts", ROLLOUT | {"stages": [STAGE, STAGE]}, "spec.stages must have different names"),
    ("executionrollouts", ROLLOUT | {"guards": [GUARD, GUARD]}, "spec.guards must have different names"),
    (
        "executionrollouts",
        ROLLOUT | {"stages": [STAGE | {"percent": 0}]},
        "a stage needs users or a percent above 0",
    ),
    (
        "executionrollouts",
        ROLLOUT | {"stages": [STAGE | {"manual": True}]},
        "exactly one of durationSeconds and manual: true is needed",
    ),
    (
        "executionrollouts",
        ROLLOUT | {"guards": [GUARD | {"threshold": 2}]},
        "the threshold of errorRate is a share from 0 to 1",
    ),
    (
        "executionrollouts",
        ROLLOUT | {"guards": [GUARD | {"metric": "faultRate", "threshold": 2}]},
        "the threshold of faultRate is a share from 0 to 1",
    ),
    (
        "executionrollouts",
        ROLLOUT | {"guards": [GUARD | {"metric": "rating", "threshold": 6}]},
        "the threshold of rating is at most 5",
    ),
    (
        "sandboxpools",
        POOL | {"resources": {"extended": {"gpu": 1}}},
        "an extended resource has a prefix, for example nvidia.com/gpu",
    ),
    ("sandboxpools", POOL | {"warm": {"max": 11}}, "spec.warm.max must not be more than spec.maxPods"),
    (
        "sandboxpools",
        POOL | {"warm": {"min": 11}},
        "spec.warm.min must not be more than spec.maxPods; it is 3 by default",
    ),
    (
        "sandboxpools",
        POOL | {"language": "typescript", "preimport": ["pandas"]},
        "spec.preimport is only for pools of the language python",
    ),
    (
        "sandboxpools",
        POOL | {"scaling": {"fastWindowSeconds": 60, "slowWindowSeconds": 30}},
        "spec.scaling.slowWindowSeconds must not be less than spec.scaling.fastWindowSeconds",
    ),
    (
        "codeexecutions",
        CODE | {"skillRef": {"name": "a"}},
        "exactly one of spec.code and spec.skillRef is needed",
    ),
    ("toolservers", {}, "exactly one of spec.url and spec.stdio must be set"),
    ("toolservers", URL | STDIO, "exactly one of spec.url and spec.stdio must be set"),
    (
        "toolservers",
        STDIO | {"headers": [{"name": "A", "value": "b"}]},
        "spec.headers, spec.userHeaders, spec.oauth and spec.tls are only allowed with spec.url",
    ),
    (
        "toolservers",
        URL | {"headers": [{"name": "A", "value": "b", "secretKeyRef": SECRET}]},
        "exactly one of value and secretKeyRef must be set",
    ),
    (
        "toolservers",
        {"stdio": STDIO["stdio"] | {"env": [{"name": "A"}]}},
        "exactly one of value and secretKeyRef must be set",
    ),
]
POOL_LANGUAGE_CHANGED = "spec.language is immutable: create another pool"
REVIEW_REMOVED = "spec.review cannot be removed"
SKILL_REF_CHANGED = "spec.skillRef is immutable"
REVIVED = "spec.cancelRequested cannot be set back to false"


def rules(schema: Object) -> set[str]:
    found = {each["message"] for each in schema.get("x-kubernetes-validations", [])}
    below = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return found.union(*map(rules, below))


def test_every_rule_of_every_definition_is_tried_here() -> None:
    schemas = [crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for crd in build_definitions().values()]
    tried = {message for *_, message in CHANGES} | {message for *_, message in REFUSED} | {REVIVED}
    tried |= {message for *_, message in [*SESSION_CHANGES, *SKILL_CHANGES, *ROLLOUT_CHANGES]} | {
        SKILL_REF_CHANGED,
        REVIEW_REMOVED,
        POOL_LANGUAGE_CHANGED,
    }
    assert set().union(*map(rules, schemas)) == tried


@pytest.mark.parametrize(("changed", "message"), CHANGES)
def test_an_execution_keeps_what_it_was_created_with(server: httpx.Client, changed: Object, message: str) -> None:
    created = create(server, "codeexecutions", CODE)
    assert message in refusal(change(server, "codeexecutions", created, changed))


@pytest.mark.parametrize(("changed", "message"), SESSION_CHANGES)
def test_a_session_keeps_what_it_is(server: httpx.Client, changed: Object, message: str) -> None:
    created = create(server, "sandboxsessions", SESSION)
    assert message in refusal(change(server, "sandboxsessions", created, changed))


@pytest.mark.parametrize(("changed", "message"), SKILL_CHANGES)
def test_a_version_of_a_skill_keeps_what_was_reviewed(server: httpx.Client, changed: Object, message: str) -> None:
    created = create(server, "skills", SKILL)
    assert message in refusal(change(server, "skills", created, changed))


@pytest.mark.parametrize(("changed", "message"), ROLLOUT_CHANGES)
def test_a_rollout_keeps_what_decides_about_arms(server: httpx.Client, changed: Object, message: str) -> None:
    created = create(server, "executionrollouts", ROLLOUT | {"killSwitch": True})
    assert message in refusal(change(server, "executionrollouts", created, changed))


def test_a_rollout_can_be_paused_promoted_and_stopped(server: httpx.Client) -> None:
    created = create(server, "executionrollouts", ROLLOUT)
    for changed in ({"paused": True}, {"promotedTo": "few"}, {"promotedTo": "Completed"}, {"killSwitch": True}):
        answer = change(server, "executionrollouts", created, changed)
        assert answer.status_code == httpx.codes.OK, answer.text


def test_a_skill_keeps_its_review(server: httpx.Client) -> None:
    created = create(server, "skills", SKILL | {"review": {"decision": "Approve", "at": "2026-01-01T00:00:00Z"}})
    assert REVIEW_REMOVED in refusal(change(server, "skills", created, {"review": None}))


def test_a_pool_keeps_its_language(server: httpx.Client) -> None:
    created = create(server, "sandboxpools", POOL)
    assert POOL_LANGUAGE_CHANGED in refusal(change(server, "sandboxpools", created, {"language": "typescript"}))


def test_an_execution_keeps_its_skill(server: httpx.Client) -> None:
    created = create(server, "codeexecutions", {"skillRef": {"name": "a"}})
    assert SKILL_REF_CHANGED in refusal(change(server, "codeexecutions", created, {"skillRef": {"name": "b"}}))


def test_an_execution_without_code_or_a_skill_is_refused(server: httpx.Client) -> None:
    assert "spec.code: Required value" in refusal(create(server, "codeexecutions", {}))


def test_a_session_can_be_reset_and_get_other_limits(server: httpx.Client) -> None:
    created = create(server, "sandboxsessions", SESSION)
    answer = change(server, "sandboxsessions", created, {"resets": 2, "idleTimeoutSeconds": 60})
    assert answer.status_code == httpx.codes.OK, answer.text


def test_an_execution_can_be_cancelled_but_not_revived(server: httpx.Client) -> None:
    created = create(server, "codeexecutions", CODE)
    assert change(server, "codeexecutions", created, {"cancelRequested": True}).status_code == httpx.codes.OK
    assert REVIVED in refusal(change(server, "codeexecutions", created, {"cancelRequested": False}))


def test_an_execution_can_be_kept_for_longer(server: httpx.Client) -> None:
    created = create(server, "codeexecutions", CODE)
    answer = change(server, "codeexecutions", created, {"ttlSecondsAfterFinished": 7200})
    assert answer.json()["spec"]["ttlSecondsAfterFinished"] == 7200


@pytest.mark.parametrize(
    ("plural", "spec", "status"),
    [
        ("codeexecutions", CODE, {"phase": "Succeeded"}),
        ("sandboxpools", POOL, {"warm": 1}),
        ("sandboxsessions", SESSION, {"phase": "Ready"}),
        ("skills", SKILL, {"state": "Draft"}),
        ("executionrollouts", ROLLOUT, {"phase": "Pending"}),
        ("toolservers", STDIO, {"available": True}),
    ],
)
def test_a_status_can_be_written(server: httpx.Client, plural: str, spec: Object, status: Object) -> None:
    answer = write_status(server, plural, create(server, plural, spec), status)
    assert answer.json().get("status") == status, answer.text


@pytest.mark.parametrize(("plural", "spec", "message"), REFUSED)
def test_what_contradicts_itself_is_refused(server: httpx.Client, plural: str, spec: Object, message: str) -> None:
    assert message in refusal(create(server, plural, spec))


@pytest.mark.parametrize(
    ("plural", "spec"),
    [
        ("codeexecutions", CODE | {"user": "somebody", "tools": ["a.*"], "context": {"rows": [1, {"any": "thing"}]}}),
        ("sandboxpools", POOL),
        ("sandboxpools", POOL | {"warm": {"max": 10}}),
        ("sandboxpools", POOL | {"resources": {"extended": {"nvidia.com/gpu": 1, "example.com/fpga": "2"}}}),
        ("executionrollouts", ROLLOUT | {"guards": [GUARD | {"compareTo": "Control"}], "completeWith": "code"}),
        (
            "executionrollouts",
            ROLLOUT | {"stages": [{"name": "five", "users": ["u-1"], "arm": "code", "manual": True}]},
        ),
        ("toolservers", URL | {"headers": [{"name": "A", "secretKeyRef": SECRET}, {"name": "B", "value": "b"}]}),
        ("toolservers", {"stdio": STDIO["stdio"] | {"env": [{"name": "A", "value": "b"}]}}),
    ],
)
def test_what_is_right_is_taken(server: httpx.Client, plural: str, spec: Object) -> None:
    answer = create(server, plural, spec)
    assert answer.status_code == httpx.codes.CREATED, answer.text


@pytest.mark.parametrize(
    ("plural", "spec"),
    [
        ("codeexecutions", CODE),
        ("sandboxpools", POOL),
        ("sandboxsessions", SESSION),
        ("skills", SKILL),
        ("executionrollouts", ROLLOUT),
        ("toolservers", URL),
    ],
)
def test_an_unknown_field_is_refused_by_its_name(server: httpx.Client, plural: str, spec: Object) -> None:
    answer = create(server, plural, spec | {"unknownField": 1})
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert 'unknown field "spec.unknownField"' in answer.json()["message"]
