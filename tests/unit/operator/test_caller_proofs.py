"""Each proof of a caller serves the first execution that has it."""

from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from tests.support.constants import SANDBOX_KEY

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, ANNOTATION_CREATED, LABEL_CALLER
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.cluster.kube.observations import CallerProofs

Object = dict[str, Any]
START = datetime.fromisoformat("2026-11-21T20:00:00+00:00")


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def build_execution(name: str = "exec-a", *, uid: str = "u-1", caller: str = "team-a", code: str = "1") -> Object:
    execution: Object = {
        "metadata": {
            "name": name,
            "namespace": "agents",
            "uid": uid,
            "creationTimestamp": START.isoformat(),
            "labels": {LABEL_CALLER: caller},
            "annotations": {ANNOTATION_CREATED: START.isoformat()},
        },
        "spec": {"code": code, "poolRef": {"name": "default"}},
    }
    proof = Attestor(keys=SandboxKeys(SANDBOX_KEY)).sign_caller(execution)
    execution["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = proof
    return execution


def build_copy(execution: Object, uid: str = "u-2", **spec: Any) -> Object:
    copied = deepcopy(execution)
    copied["metadata"]["uid"] = uid
    copied["spec"] |= spec
    return copied


def build_proofs(clock: Clock | None = None) -> CallerProofs:
    return CallerProofs(attestor=Attestor(keys=SandboxKeys(SANDBOX_KEY)), clock=clock or Clock())


def test_a_copy_of_a_deleted_execution_only_claims_its_caller() -> None:
    proofs, first = build_proofs(), build_execution()
    assert [proofs.read_caller(first) for _ in range(2)] == ["team-a"] * 2
    copied = build_copy(first)
    assert proofs.read_caller(copied) == "claimed:team-a"
    assert proofs.read_listed_caller(copied["metadata"]) == "claimed:team-a"
    assert proofs.read_caller(first) == proofs.read_listed_caller(first["metadata"]) == "team-a"


def test_a_copy_with_other_code_takes_no_proof_from_the_execution() -> None:
    proofs, first = build_proofs(), build_execution()
    assert proofs.read_caller(build_copy(first, code="2")) == "claimed:team-a"
    assert proofs.read_caller(first) == "team-a"


def test_executions_with_proofs_of_their_own_have_their_callers() -> None:
    proofs = build_proofs()
    names = [f"exec-{number}" for number in range(3)]
    assert [proofs.read_caller(build_execution(name, uid=name)) for name in names] == ["team-a"] * 3


def test_an_execution_without_a_caller_is_nobodys() -> None:
    assert build_proofs().read_caller({"metadata": {"name": "a", "namespace": "b", "uid": "u"}, "spec": {}}) == ""


def test_a_copy_that_ran_for_long_only_claims_its_caller_at_its_end() -> None:
    clock = Clock()
    proofs, first = build_proofs(clock), build_execution()
    proofs.read_caller(first)
    copied = build_copy(first)
    proofs.read_caller(copied)
    clock.now += timedelta(hours=8)
    assert proofs.read_listed_caller(copied["metadata"]) == "claimed:team-a"


def test_proofs_are_forgotten_when_no_new_object_can_use_them() -> None:
    clock = Clock()
    proofs = build_proofs(clock)
    for number in range(100):
        proofs.read_caller(build_execution(f"exec-{number}", uid=f"u-{number}"))
    clock.now += timedelta(minutes=11)
    proofs.read_caller(build_execution("exec-last", uid="u-last"))
    assert len(proofs) == 1
