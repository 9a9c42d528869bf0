"""Every field of a spec: whether it can name something of another tenant, and what shows that it reaches none of it.

A field without a row fails, so that a new field is classified before it is used.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
from tests.support.named_tests import is_test

from mcp_exec_api.crd_schema import build_definitions

OWN = "own"
"""Data of the object itself: numbers, choices, texts, names of parts of it."""
CLUSTER = "cluster"
"""Names something that belongs to no tenant: an image, a class, a node. docs/platform/security.md lists it as trust."""

OPERATOR = "tests/component/operator/test_tenants.py::"
BROKER = "tests/component/broker/test_tenants.py::"
SECRETS = "tests/component/broker/test_sessions.py::test_the_name_of_a_secret_leads_to_no_other_namespace"
PATHS = "tests/component/api/test_kube.py::test_no_name_leads_to_another_object_or_namespace"
OWN_POD = "tests/unit/operator/test_pod_manifest.py::test_a_pod_belongs_to_its_pool"
TEMPLATE = "tests/unit/operator/test_pod_manifest.py::test_a_template_that_would_weaken_a_pod_is_refused_and_told"
BUNDLES = (
    "tests/component/broker/test_company_network.py::test_a_server_is_verified_by_the_bundle_that_its_namespace_has"
)
REFERRED = "tests/unit/operator/test_tool_server_manifests.py::test_secrets_are_referred_to_and_never_copied"
SESSIONS = "tests/component/operator/test_sessions.py::"
OTHERS_SESSION = SESSIONS + "test_the_session_of_another_owner_is_refused"
URL = BROKER + "test_a_url_of_the_releases_own_ports_gets_nothing"
SERVERS = BROKER + "test_a_server_of_another_namespace_is_as_if_it_were_not"

FIELDS: dict[str, dict[str, str]] = {
    "codeexecutions": {
        "code language context description timeoutSeconds approvalTimeoutSeconds limits.* priority": OWN,
        "ttlSecondsAfterFinished cancelRequested": OWN,
        "skillRef.* skills[]": "tests/component/operator/test_skills.py"
        "::test_a_skill_of_another_namespace_is_as_if_it_were_not",
        "poolRef.name": OPERATOR + "test_a_pool_of_another_namespace_is_as_if_it_were_not",
        "tools[]": SERVERS,
        "session": OTHERS_SESSION,
        "workspace.name": "tests/unit/api/test_owner.py::test_owners_differ_in_namespace_caller_and_user",
        "workspace.mode": OWN,
        "user": BROKER + "test_servers_and_users_of_one_name_are_of_their_own_namespace",
        "approvals[].id": "tests/component/broker/test_approvals.py::test_approving_one_call_covers_no_other",
        "approvals[].argumentsDigest": "tests/component/broker/test_approvals.py"
        "::test_a_decision_on_other_arguments_does_not_count",
        "approvals[].decision approvals[].comment": OWN,
        "approvals[].proof": "tests/unit/common/test_attestations.py",
        "approvals[].by": "tests/component/chart/test_admission.py::test_an_approver_decides_in_no_name_but_their_own",
    },
    "sandboxpools": {
        "imagePullPolicy resources.* workspaceSize workspaceMedium warm.* scaling.* reuse.* onEmpty codeCheck.*": OWN,
        "language maxProcesses maxTimeoutSeconds maxPods maxQueued maxIdleAgeSeconds logOutput preimport[]": OWN,
        "image runtimeClassName priorityClassName": CLUSTER,
        "nodeSelector{} tolerations[].* affinity": CLUSTER,
        "imagePullSecrets[].name": OWN_POD,
        "template.metadata.* template.spec": TEMPLATE,
        "tools.allow[] tools.deny[]": SERVERS,
    },
    "sandboxsessions": {
        "name idleTimeoutSeconds maxAgeSeconds maxQueued description resets": OWN,
        "poolRef.name": SESSIONS + "test_a_session_gets_no_pod_of_another_namespace",
        "user": OTHERS_SESSION,
    },
    "toolservers": {
        "url": URL,
        "oauth.tokenUrl": URL,
        "oauth.clientId.name oauth.clientSecret.name headers[].secretKeyRef.name userHeaders[].secretName": SECRETS,
        "stdio.env[].secretKeyRef.name": PATHS,
        "tls.caBundleRef.name tls.caBundleRef.key": BUNDLES,
        "stdio.env[].secretKeyRef.key headers[].secretKeyRef.key oauth.clientId.key oauth.clientSecret.key": REFERRED,
        "stdio.imagePullSecrets[].name": REFERRED,
        "stdio.image stdio.runtimeClassName": CLUSTER,
        "stdio.egress[]": "tests/unit/operator/test_tool_server_manifests.py"
        "::test_the_broker_alone_reaches_a_server_and_it_reaches_what_its_spec_says",
        "stdio.command[] stdio.env[].name stdio.env[].value stdio.resources.* stdio.maxSessions stdio.dataSize": OWN,
        "headers[].value headers[].name headers[].prefix userHeaders[].name userHeaders[].prefix oauth.scopes[]": OWN,
        "allow[] deny[] direct[] policy.* scan.* limits.* refreshSeconds": OWN,
    },
    "skills": {
        "name version description code language instructions tags[] provenance.*": OWN,
        "tools[]": "tests/component/operator/test_skills.py::test_a_skill_adds_no_tool_to_an_execution",
        "user": "tests/component/operator/test_skills.py::test_a_draft_runs_for_its_author_and_user_alone",
        "review.*": "tests/unit/common/test_skill_proofs.py",
    },
    "executionrollouts": {
        "arms[].name arms[].mode arms[].weight control completeWith paused killSwitch promotedTo salt": OWN,
        "stages[].* guards[].*": OWN,
        "arms[].pool": OPERATOR + "test_a_pool_of_another_namespace_is_as_if_it_were_not",
    },
}
"""Patterns of fields, and what they are: OWN, CLUSTER, or the test that shows that they stay in their namespace."""


def leaves(schema: dict[str, Any], path: str) -> Iterator[str]:
    if schema.get("properties"):
        for name, each in schema["properties"].items():
            yield from leaves(each, f"{path}.{name}")
    elif "items" in schema:
        yield from leaves(schema["items"], f"{path}[]")
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from leaves(schema["additionalProperties"], f"{path}{{}}")
    else:
        yield path.removeprefix(".")


def fields_of(plural: str) -> list[str]:
    version = build_definitions()[plural]["spec"]["versions"][0]
    return list(leaves(version["schema"]["openAPIV3Schema"]["properties"]["spec"], ""))


def matches(field: str, pattern: str) -> bool:
    return fnmatchcase(field, re.sub(r"[\[\]]", lambda found: f"[{found[0]}]", pattern))


def test_every_resource_is_listed() -> None:
    assert set(FIELDS) == set(build_definitions())


@pytest.mark.parametrize("plural", sorted(build_definitions()))
def test_every_field_has_exactly_one_row(plural: str) -> None:
    patterns = [pattern for group in FIELDS[plural] for pattern in group.split()]
    rows = {field: [each for each in patterns if matches(field, each)] for field in fields_of(plural)}
    assert {field: found for field, found in rows.items() if len(found) != 1} == {}
    unused = [each for each in patterns if not any(matches(field, each) for field in rows)]
    assert unused == []


@pytest.mark.parametrize("test", sorted({each for rows in FIELDS.values() for each in rows.values()} - {OWN, CLUSTER}))
def test_the_test_of_each_field_exists(test: str) -> None:
    assert is_test(test)
