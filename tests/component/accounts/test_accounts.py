"""What accounts inside a served namespace may do, sent to a real API server: each row of docs/reference/accounts.md."""

import os
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hack.accounts.model import Row, read_rows
from hack.accounts.rights import FILE, KUBERNETES, build_file, read_file
from tests.component.accounts.conftest import OWNER, account
from tests.component.accounts.objects import NAMESPACE
from tests.component.accounts.samples import OWN, Sample, find_sample
from tests.component.accounts.server import Object, Server

VERSIONS = {
    "": "v1",
    "apps": "apps/v1",
    "authorization.k8s.io": "authorization.k8s.io/v1",
    "autoscaling": "autoscaling/v2",
    "batch": "batch/v1",
    "coordination.k8s.io": "coordination.k8s.io/v1",
    "events.k8s.io": "events.k8s.io/v1",
    "mcp-exec.dev": "mcp-exec.dev/v1beta1",
    "networking.k8s.io": "networking.k8s.io/v1",
    "policy": "policy/v1",
    "rbac.authorization.k8s.io": "rbac.authorization.k8s.io/v1",
    "resource.k8s.io": "resource.k8s.io/v1",
}


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One verb of a row on one kind, by an account with the fewest rights that grant it."""

    row: Row
    by: str
    verb: str
    kind: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.by} {self.verb} {self.kind} {self.what}"

    @property
    def collection(self) -> str:
        """The path of the kind's objects."""
        resource, _, group = self.kind.partition("/")[0].partition(".")
        version = VERSIONS[group]
        return f"{'/apis' if group else '/api'}/{version}/namespaces/{NAMESPACE}/{resource}"

    @property
    def subresource(self) -> str:
        """The kind's subresource with a slash, or an empty text."""
        _, slash, part = self.kind.partition("/")
        return slash + part

    def send(self, server: Server) -> httpx.Response:
        """Send it as a dry run."""
        user, sample = account(self.by), find_sample(self.what, self.kind)
        path = f"{self.collection}/{sample.name}{self.subresource}"
        match self.verb:
            case "create":
                created = path if self.subresource else self.collection
                return server.request("POST", created, _rename(sample, self.subresource), user=user, dryRun="All")
            case "patch":
                assert sample.patch, self
                return server.request("PATCH", path, sample.patch, user=user, dryRun="All")
            case "update":
                assert sample.patch, self
                changed = merge(server.send("GET", path), sample.patch)
                return server.request("PUT", path, changed, user=user, dryRun="All")
            case "delete":
                return server.request("DELETE", path, user=user, dryRun="All")
        assert self.verb == "deletecollection", self
        named = f"metadata.name={sample.name}"
        return server.request("DELETE", self.collection, user=user, dryRun="All", fieldSelector=named)


def _rename(sample: Sample, subresource: str) -> Object:
    """Return what is created. If it is of the account, its name is one that nothing has."""
    assert sample.body, sample
    if subresource or sample.body["metadata"]["name"] != OWN:
        return sample.body
    return sample.body | {"metadata": sample.body["metadata"] | {"name": "new"}}


def merge(item: Any, patch: Any) -> Any:
    """Return an object after a merge; lists of objects with names are merged by these."""
    if isinstance(item, dict) and isinstance(patch, dict):
        merged = {name: merge(item.get(name), value) for name, value in patch.items()}
        return {name: value for name, value in (item | merged).items() if value is not None}
    if isinstance(item, list) and isinstance(patch, list) and all("name" in each for each in item + patch):
        changes = {each["name"]: each for each in patch}
        return [merge(each, changes.pop(each["name"], {})) for each in item] + list(changes.values())
    return patch


ROWS = read_rows()
ATTEMPTS = [
    Attempt(row=row, by=by, verb=verb, kind=kind, what=what)
    for row in ROWS
    for by in row.by
    for kind in row.kinds
    for verb in row.verbs
    for what in row.what
]


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=str)
def test_a_write_of_an_account_gets_the_answer_of_its_row(server: Server, attempt: Attempt) -> None:
    answer = attempt.send(server)
    if attempt.row.verdict == "refused":
        assert answer.is_error, "it was accepted"
        message = answer.json()["message"]
        assert [name for name in attempt.row.policies or (attempt.row.because,) if name in message], message
    else:
        assert answer.is_success, answer.text


def test_an_account_that_may_scale_pools_may_let_an_autoscaler_do_it(server: Server) -> None:
    sample = find_sample("an autoscaler of a pool", "horizontalpodautoscalers.autoscaling")
    path = f"/apis/{VERSIONS['autoscaling']}/namespaces/{NAMESPACE}/horizontalpodautoscalers"
    assert server.request("POST", path, _rename(sample, ""), user=OWNER, dryRun="All").is_success


@pytest.mark.parametrize("row", [row for row in ROWS if not row.what], ids=str)
def test_an_account_has_the_rights_that_no_dry_run_can_try(server: Server, row: Row) -> None:
    for right in row.list_rights():
        kind, _, part = right.kind.partition("/")
        resource, _, group = kind.partition(".")
        attributes = {
            "namespace": NAMESPACE, "verb": right.verb, "group": group, "resource": resource, "subresource": part
        }  # fmt: skip
        path, review = (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": attributes}},
        )
        answer = server.send("POST", path, review, user=account(right.role))
        assert answer["status"]["allowed"], right


def test_kubernetes_own_roles_are_those_of_the_table(server: Server) -> None:
    version = ".".join(server.send("GET", "/version")["gitVersion"].removeprefix("v").split(".")[:2])
    known = read_file()["version"]
    if version != known and not os.environ.get("RECORD"):
        pytest.skip(f"the table is that of Kubernetes {known}, and this is {version}")
    roles = [server.send("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}") for name in KUBERNETES]
    groups = [each["preferredVersion"]["groupVersion"] for each in server.send("GET", "/apis")["groups"]]
    lists = [server.send("GET", path) for path in ("/api/v1", *(f"/apis/{each}" for each in groups))]
    text = build_file(version=version, roles=roles, lists=lists)
    if os.environ.get("RECORD"):
        FILE.write_text(text)
    assert text == FILE.read_text(), "RECORD=yes writes it again"
