"""Proofs of callers and of decisions: whatever else somebody writes is only claimed."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.constants import SANDBOX_KEY
from tests.support.fuzz import fuzz_settings

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, ANNOTATION_CREATED, LABEL_CALLER
from mcp_exec_common.broker.attestations import CLAIMED, UNKNOWN, Attestor, drop_claim
from mcp_exec_common.sandbox_keys import SandboxKeys

ATTESTOR = Attestor(keys=SandboxKeys(SANDBOX_KEY))
Object = dict[str, Any]


def build_execution() -> Object:
    execution: Object = {
        "metadata": {
            "name": "exec-a",
            "namespace": "agents",
            "creationTimestamp": "2026-11-21T20:00:03Z",
            "labels": {LABEL_CALLER: "team-a"},
            "annotations": {ANNOTATION_CREATED: "2026-11-21T20:00:00.123456Z"},
        },
        "spec": {"code": "print(1)", "user": "u-42", "tools": ["github.*"], "poolRef": {"name": "default"}},
    }
    execution["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = ATTESTOR.sign_caller(execution)
    return execution


def test_a_caller_with_its_proof_is_the_caller() -> None:
    assert ATTESTOR.read_caller(build_execution()) == "team-a"


def test_fields_that_the_api_server_and_the_operator_set_later_change_nothing() -> None:
    execution = build_execution()
    execution["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    execution["spec"] |= {"cancelRequested": True, "ttlSecondsAfterFinished": 60}
    execution["status"] = {"phase": "Running"}
    assert ATTESTOR.read_caller(execution) == "team-a"


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"labels": {LABEL_CALLER: "team-b"}}},
        {"metadata": {"annotations": {ANNOTATION_CALLER_PROOF: ""}}},
        {"metadata": {"annotations": {ANNOTATION_CALLER_PROOF: "é"}}},
        {"metadata": {"annotations": {ANNOTATION_CALLER_PROOF: "0" * 64}}},
        {"metadata": {"annotations": {ANNOTATION_CREATED: "2026-11-21T20:00:00.123457Z"}}},
        {"metadata": {"annotations": {ANNOTATION_CREATED: "nonsense"}}},
        {"metadata": {"name": "exec-b"}},
        {"metadata": {"namespace": "others"}},
        {"metadata": {"creationTimestamp": "2026-11-21T20:10:00Z"}},
        {"metadata": {"creationTimestamp": "2026-11-21T19:50:00Z"}},
        {"spec": {"code": "print(2)"}},
        {"spec": {"user": "u-43"}},
        {"spec": {"tools": ["*.*"]}},
        {"spec": {"poolRef": {"name": "big"}}},
        {"spec": {"session": "s"}},
        {"spec": {"context": {"path": "payroll.csv"}}},
        {"spec": {"workspace": {"name": "w", "mode": "Write"}}},
    ],
    ids=str,
)
def test_a_proof_does_not_serve_another_execution(changes: Object) -> None:
    execution = build_execution()
    for part, fields in changes.items():
        for name, value in fields.items():
            both = isinstance(value, dict) and isinstance(execution[part].get(name), dict)
            execution[part][name] = {**execution[part][name], **value} if both else value
    assert ATTESTOR.read_caller(execution) == CLAIMED + execution["metadata"]["labels"][LABEL_CALLER]


def test_a_proof_holds_whatever_the_order_of_keys_in_which_the_api_server_returns_them() -> None:
    execution = build_execution()
    execution["spec"] |= {"workspace": {"name": "w", "mode": "Read"}, "skillRef": {"version": 2, "name": "s"}}
    execution["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = ATTESTOR.sign_caller(execution)
    for field in ("workspace", "skillRef"):
        execution["spec"][field] = dict(reversed(execution["spec"][field].items()))
    assert ATTESTOR.read_caller(execution) == "team-a"


@pytest.mark.parametrize("changed", [{"path": "payroll.csv"}, {"path": "report.csv", "to": "me"}, {}, None])
def test_whoever_changes_the_context_of_a_waiting_execution_takes_its_caller_away(changed: Object | None) -> None:
    execution = build_execution()
    execution["spec"] |= {"context": {"path": "report.csv"}, "session": "s", "skillRef": {"name": "convert-table"}}
    execution["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = ATTESTOR.sign_caller(execution)
    assert ATTESTOR.read_caller(execution) == "team-a"
    execution["spec"]["context"] = changed
    assert ATTESTOR.read_caller(execution) == CLAIMED + "team-a"


def test_a_context_is_proven_whatever_the_api_server_made_of_its_numbers_and_keys() -> None:
    execution = build_execution()
    execution["spec"]["context"] = {"b": 1.0, "a": {"d": 2**64, "c": [-0.0, 1e-7, "é😀"]}}
    execution["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = ATTESTOR.sign_caller(execution)
    execution["spec"]["context"] = {"a": {"c": [0, 1e-07, "é😀"], "d": 18446744073709552000}, "b": 1}
    assert ATTESTOR.read_caller(execution) == "team-a"


def test_another_releases_proof_is_none() -> None:
    execution = build_execution()
    assert Attestor(keys=SandboxKeys(b"another key")).read_caller(execution) == "claimed:team-a"


def test_an_execution_without_a_caller_claims_none() -> None:
    assert ATTESTOR.read_caller({"metadata": {"name": "a", "namespace": "b"}, "spec": {}}) == ""


def test_a_decision_counts_for_its_approval_of_its_execution_alone() -> None:
    decision = {"id": "approval-1", "decision": "Approve", "by": "boss", "comment": "go"}
    decision["proof"] = ATTESTOR.sign_decision(decision, uid="u-1")
    assert ATTESTOR.read_approver(decision, uid="u-1") == "boss"
    assert ATTESTOR.read_approver(decision, uid="u-2") == "claimed:boss"
    for field, value in (("id", "approval-2"), ("decision", "Deny"), ("by", "chief"), ("comment", "no"), ("proof", "")):
        forged = {**deepcopy(decision), field: value}
        assert ATTESTOR.read_approver(forged, uid="u-1") == CLAIMED + forged["by"]
    del decision["by"]
    assert ATTESTOR.read_approver(decision, uid="u-1") == UNKNOWN


TEXT = st.text(max_size=12)


@pytest.mark.fuzz
@fuzz_settings(100)
@given(
    execution=st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries(
                {"name": TEXT, "namespace": TEXT},
                optional={
                    "creationTimestamp": TEXT,
                    "labels": st.none() | st.fixed_dictionaries({}, optional={LABEL_CALLER: TEXT}),
                    "annotations": st.none()
                    | st.fixed_dictionaries({}, optional={ANNOTATION_CALLER_PROOF: TEXT, ANNOTATION_CREATED: TEXT}),
                },
            ),
            "spec": st.none() | st.fixed_dictionaries({}, optional={"code": TEXT, "user": st.none() | TEXT}),
        }
    )
)
def test_no_guess_is_a_proof(execution: Object) -> None:
    label = (execution["metadata"].get("labels") or {}).get(LABEL_CALLER) or ""
    assert ATTESTOR.read_caller(execution) == (CLAIMED + label if label else "")


def created_by(account: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "e", "annotations": {"mcp-exec.dev/created-by": account}, "labels": labels}}


@pytest.mark.parametrize(
    ("account", "read"),
    [
        ("alice@example.com", "k8s/alice@example.com"),
        ("system:serviceaccount:ns:name", "k8s/system:serviceaccount:ns:name"),
        ("a" * 240, "k8s/" + "a" * 240),
        ("a" * 241, "claimed:k8s/" + "a" * 240),
        ("alice\n\x1b[2J", "claimed:k8s/alice..[2J"),
        ("system:anonymous", "claimed:k8s/system:anonymous"),
        ("", ""),
    ],
)
def test_an_account_is_a_caller_where_admission_policies_prove_it(account: str, read: str) -> None:
    proving = Attestor(keys=SandboxKeys(SANDBOX_KEY), accounts_proven=True)
    assert proving.read_caller(created_by(account)) == read
    assert proving.read_author(created_by(account)) == read
    assert proving.read_listed_caller(created_by(account)["metadata"]) == read
    assert drop_claim(ATTESTOR.read_caller(created_by(account))) == "", "anybody can write it without policies"
    assert proving.read_caller(created_by(account, **{LABEL_CALLER: "team-a"})) == "claimed:team-a"
