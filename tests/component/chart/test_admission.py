"""ValidatingAdmissionPolicies: what others than the parts of the release may not write in served namespaces."""

from collections.abc import Callable
from typing import Any

import celpy
import pytest
from celpy.celtypes import BoolType, MapType
from tests.component.chart.conftest import Object, Render, Rendered

from mcp_exec_api.constants import ANNOTATION_CREATED, ANNOTATION_CREATED_BY, LABEL_CALLER, LABEL_NAME, SANDBOX_NAME
from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_gateway.core.executions.index import ANNOTATION_IDEMPOTENCY
from mcp_exec_gateway.core.executions.submission import ANNOTATION_REQUEST

ACCOUNT = "system:serviceaccount:mcp-exec-system:mcp-exec-"
GATEWAY, OPERATOR, BROKER = (f"{ACCOUNT}{name}" for name in ("gateway", "operator", "broker"))
ALICE = "alice@example.com"
BOB = "bob@example.com"
RIGHT = "mayApprove"
RIGHTS = {RIGHT, "mayClaim", "administers", "writesAllPolicies"}
"""The variables that ask the API server for a right, which a test states."""
APART = {"mcp-exec-definitions", "mcp-exec-secrets"}
"""Policies that bind the operator elsewhere than in served namespaces."""

Verdict = Callable[..., list[str]]


def run(expression: str, activation: dict[str, Any]) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression)).evaluate(activation)


@pytest.fixture(scope="module")
def rendered(helm3: Render) -> Rendered:
    return helm3({"namespaces": ["agents", "batch"]}, "--kube-version", "1.30.0")


def test_policies_match_resources_of_the_project_in_each_version(rendered: Rendered) -> None:
    policies = rendered.all("ValidatingAdmissionPolicy")
    rules = [rule for each in policies for rule in each["spec"]["matchConstraints"]["resourceRules"]]
    own = [rule["apiVersions"] for rule in rules if rule["apiGroups"] == ["mcp-exec.dev"]]
    assert own
    assert own == [["*"]] * len(own)


def refusals(
    policy: Object, *, user: str, new: Object, old: Object | None = None, right: bool = False, resource: str = ""
) -> list[str]:
    """Return the messages of a policy that refuses a write, as the API server evaluates it.

    A policy that does not match `resource`, if it is given, refuses nothing.
    """
    spec = policy["spec"]
    rules = spec["matchConstraints"]["resourceRules"]
    operation = "CREATE" if old is None else "UPDATE"
    if resource and not any(resource in each["resources"] and operation in each["operations"] for each in rules):
        return []
    request = {"userInfo": {"username": user}, "operation": operation}
    given = {"object": new, "oldObject": old, "request": request}
    activation = {name: celpy.json_to_cel(value) for name, value in given.items()}
    variables = MapType()
    activation["variables"] = variables
    if not all(run(each["expression"], activation) for each in spec.get("matchConditions", [])):
        return []
    for each in spec.get("variables", []):
        value = BoolType(right) if each["name"] in RIGHTS else run(each["expression"], activation)
        variables[celpy.json_to_cel(each["name"])] = value
    return [each["message"] for each in spec["validations"] if not run(each["expression"], activation)]


@pytest.fixture(scope="module")
def verdict(rendered: Rendered) -> Verdict:
    return lambda name, **write: refusals(rendered.one("ValidatingAdmissionPolicy", f"mcp-exec-{name}"), **write)


def execution(*approvals: Object, user: str | None = None, **metadata: Any) -> Object:
    spec: Object = {"code": "1"} | ({"approvals": list(approvals)} if approvals else {})
    return {"metadata": {"name": "x", **metadata}, "spec": spec | ({"user": user} if user else {})}


def decision(by: str | None, *, id: str = "a-1", choice: str = "Approve") -> Object:
    return {"id": id, "decision": choice} | ({"by": by} if by else {})


MARKS = [
    {"labels": {LABEL_CALLER: "team-b"}},
    {"annotations": {ANNOTATION_CREATED: "2020-01-01T00:00:00.000000Z"}},
    {"annotations": {ANNOTATION_IDEMPOTENCY: "0" * 64}},
    {"annotations": {ANNOTATION_REQUEST: "r"}},
    {"labels": {"mcp-exec.dev/of-a-later-version": "x"}},
]


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: next(iter(next(iter(mark.values())))))
def test_only_the_gateway_states_who_called(verdict: Verdict, mark: Object) -> None:
    kind = next(iter(mark))
    said = [f"only the gateway may set, change or remove {kind} with the prefix mcp-exec.dev/"]
    marked, plain = execution(**mark), execution()
    changed = execution(**{kind: dict.fromkeys(mark[kind], "another")})
    assert verdict("executions", user=ALICE, new=marked) == said
    assert verdict("executions", user=ALICE, new=marked, old=plain) == said
    assert verdict("executions", user=ALICE, new=changed, old=marked) == said
    assert verdict("executions", user=ALICE, new=plain, old=marked) == said
    assert verdict("executions", user=GATEWAY, new=marked) == []
    with_others = execution(**{kind: mark[kind] | {"team": "a"}})
    assert verdict("executions", user=ALICE, new=with_others, old=marked) == []


def test_an_execution_without_such_marks_is_anyones(verdict: Verdict) -> None:
    assert verdict("executions", user=ALICE, new=execution()) == []
    assert verdict("executions", user=ALICE, new=execution(labels={"team": "a"}, annotations={"note": "b"})) == []


def test_an_execution_names_its_own_account_or_none_and_keeps_it(verdict: Verdict) -> None:
    said = ["the annotation mcp-exec.dev/created-by must be your own username or missing, and cannot be changed"]
    unnamed, own, others = execution(), *(execution(annotations={ANNOTATION_CREATED_BY: each}) for each in (ALICE, BOB))
    assert verdict("creators", user=ALICE, new=unnamed) == verdict("creators", user=ALICE, new=own) == []
    assert verdict("creators", user=ALICE, new=others) == said
    for old, new in ((unnamed, own), (own, unnamed), (own, others), (others, own)):
        assert verdict("creators", user=ALICE, new=new, old=old) == said
    assert verdict("creators", user=BOB, new=own, old=own) == []
    for user in (GATEWAY, OPERATOR):
        assert verdict("creators", user=user, new=others) == []
    assert verdict("executions", user=ALICE, new=own) == []


def test_accounts_are_proven_only_with_the_policies(helm3: Render) -> None:
    """The operator and the gateway trust the annotation by a variable that is rendered as the policies are."""
    for version, values, proven, mutating in (
        ("1.29.0", {}, None, []),
        ("1.30.0", {}, "true", []),
        ("1.36.0", {}, "true", ["mcp-exec-creators"]),
        ("1.36.0", {"admissionPolicy": {"enabled": False}}, None, []),
    ):
        rendered = helm3(values, "--kube-version", version)
        assert rendered.names("MutatingAdmissionPolicy") == mutating
        bound = [each["spec"]["policyName"] for each in rendered.all("MutatingAdmissionPolicyBinding")]
        assert sorted(set(bound)) == mutating
        assert ("mcp-exec-creators" in rendered.names("ValidatingAdmissionPolicy")) == bool(proven)
        for process in ("mcp-exec-operator", "mcp-exec-gateway"):
            assert rendered.environment(process).get("MCP_EXEC_ACCOUNTS_PROVEN") == proven


BY = "spec.approvals[].by must be your own username"
KEPT = "decisions in spec.approvals cannot be changed, removed or decided again"
NO_RIGHT = "you need the right to update codeexecutions/approval to decide on tool calls"
EMPTY = "spec.approvals must be empty when an execution is created"


@pytest.mark.parametrize(
    ("old", "new", "right", "said"),
    [
        ([], [decision(ALICE)], True, []),
        ([], [decision(BOB)], True, [BY]),
        ([], [decision(None)], True, [BY]),
        ([], [decision(ALICE)], False, [NO_RIGHT]),
        ([], [decision(ALICE), decision(BOB, id="a-2")], True, [BY]),
        ([decision(BOB)], [decision(BOB), decision(ALICE, id="a-2")], True, []),
        ([decision(BOB)], [decision(BOB)], False, []),
        ([decision(BOB)], [], True, [KEPT]),
        ([decision(BOB)], [decision(ALICE)], True, [KEPT]),
        ([decision(BOB)], [decision(BOB, choice="Deny")], True, [KEPT, BY]),
        ([decision(BOB)], [decision(ALICE, choice="Deny"), decision(BOB)], True, [KEPT]),
    ],
)
def test_an_approver_decides_in_no_name_but_their_own(
    verdict: Verdict, old: list[Object], new: list[Object], right: bool, said: list[str]
) -> None:
    change = {"new": execution(*new), "old": execution(*old), "right": right}
    assert verdict("executions", user=ALICE, **change) == said
    assert verdict("executions", user=GATEWAY, **change) == []


def test_an_execution_begins_without_decisions(verdict: Verdict) -> None:
    assert verdict("executions", user=ALICE, new=execution(decision(ALICE)), right=True) == [EMPTY]


def test_the_right_to_approve_is_the_one_that_the_gateway_asks_for(rendered: Rendered) -> None:
    spec = rendered.one("ValidatingAdmissionPolicy", "mcp-exec-executions")["spec"]
    asked = next(each["expression"] for each in spec["variables"] if each["name"] == "mayApprove")
    role = rendered.one("ClusterRole", "mcp-exec-approver")["rules"][1]
    group, (resource, part), verb = role["apiGroups"][0], role["resources"][0].split("/"), role["verbs"][0]
    assert f"group('{group}').resource('{resource}').subresource('{part}')" in asked
    assert f".check('{verb}').allowed()" in asked


def test_further_accounts_can_be_trusted_as_the_gateway_is(helm3: Render) -> None:
    values = {"admissionPolicy": {"trustedUsers": [BOB]}}
    policy = helm3(values, "--kube-version", "1.30.0").one("ValidatingAdmissionPolicy", "mcp-exec-executions")
    marked = execution(labels={LABEL_CALLER: "team-b"})
    assert refusals(policy, user=BOB, new=marked) == []
    assert refusals(policy, user=ALICE, new=marked) != []


def test_users_can_be_bound_to_their_own_name(helm3: Render, verdict: Verdict) -> None:
    own = {"admissionPolicy": {"ownUserOnly": True}}
    policy = helm3(own, "--kube-version", "1.30.0").one("ValidatingAdmissionPolicy", "mcp-exec-executions")
    said = ["spec.user must be your own username or empty"]
    assert refusals(policy, user=ALICE, new=execution(user=BOB)) == said
    assert refusals(policy, user=ALICE, new=execution(user=ALICE)) == []
    assert refusals(policy, user=ALICE, new=execution()) == []
    assert refusals(policy, user=ALICE, new=execution(user=BOB), old=execution(user=BOB)) == []
    assert refusals(policy, user=GATEWAY, new=execution(user=BOB)) == []
    assert verdict("executions", user=ALICE, new=execution(user=BOB)) == []


@pytest.mark.parametrize(
    ("name", "writers"), [("status", {OPERATOR}), ("server-status", {OPERATOR, BROKER})], ids=["runs", "servers"]
)
def test_a_status_is_written_by_its_owner_alone(verdict: Verdict, name: str, writers: set[str]) -> None:
    accepted = {user for user in (GATEWAY, OPERATOR, BROKER, ALICE) if verdict(name, user=user, new={}, old={}) == []}
    assert accepted == writers


def test_every_status_has_a_policy(rendered: Rendered) -> None:
    guarded = [
        resource
        for policy in rendered.all("ValidatingAdmissionPolicy")
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
        if resource.endswith("/status") and rule["apiGroups"] == ["mcp-exec.dev"]
    ]
    assert sorted(guarded) == sorted(f"{plural}/status" for plural in build_definitions())


SERVER = "mcp-exec-tool-server"
SANDBOX = {"metadata": {"labels": {LABEL_NAME: SANDBOX_NAME, "mcp-exec.dev/pool": "a"}}, "spec": {"nodeName": "n"}}


ALTERED = ["only the operator may change the labels or the spec of a sandbox or of a stdio server's pod"]


def changed(**changes: Any) -> Object:
    return {"metadata": SANDBOX["metadata"] | changes.pop("metadata", {}), "spec": SANDBOX["spec"] | changes}


def test_nobody_but_the_operator_makes_a_sandbox(verdict: Verdict) -> None:
    said = ["only the operator may create sandboxes, or make a pod one"]
    assert verdict("sandboxes", user=ALICE, new=SANDBOX) == said
    assert verdict("sandboxes", user=ALICE, new=SANDBOX, old={"metadata": {}, "spec": SANDBOX["spec"]}) == said
    assert verdict("sandboxes", user=OPERATOR, new=SANDBOX) == []
    assert verdict("sandboxes", user=ALICE, new={"metadata": {"labels": {LABEL_NAME: "web"}}, "spec": {}}) == []
    assert verdict("sandboxes", user=ALICE, new={"metadata": {}, "spec": {}}) == []


@pytest.mark.parametrize(
    ("new", "allowed"),
    [
        (changed(containers=[{"image": "another"}]), False),
        (changed(metadata={"labels": {LABEL_NAME: SANDBOX_NAME}}), False),
        (changed(metadata={"labels": {}}), False),
        ({"metadata": {}, "spec": SANDBOX["spec"]}, False),
        (changed(metadata={"annotations": {"note": "x"}}), True),
        (changed(metadata={"finalizers": []}), True),
    ],
)
def test_nobody_but_the_operator_changes_what_isolates_a_sandbox(verdict: Verdict, new: Object, allowed: bool) -> None:
    said = [] if allowed else ALTERED
    assert verdict("sandboxes", user=ALICE, new=new, old=SANDBOX) == said
    assert verdict("sandboxes", user=OPERATOR, new=new, old=SANDBOX) == []


KUBELET, SCHEDULER = "system:node:n", "system:kube-scheduler"
MADE = ["only the operator may create sandboxes, or make a pod one"]


@pytest.mark.parametrize("resource", ["pods", "pods/status", "pods/resize", "pods/ephemeralcontainers"])
def test_no_subresource_changes_what_isolates_a_sandbox(verdict: Verdict, resource: str) -> None:
    larger = changed(containers=[{"resources": {"limits": {"memory": "64Gi"}}}])
    watched = changed(ephemeralContainers=[{"name": "debugger"}])
    unlabelled, web = changed(metadata={"labels": {}}), {"metadata": {"labels": {LABEL_NAME: "web"}}, "spec": {}}
    for new in (larger, watched, unlabelled):
        assert verdict("sandboxes", user=ALICE, new=new, old=SANDBOX, resource=resource) == ALTERED
        assert verdict("sandboxes", user=OPERATOR, new=new, old=SANDBOX, resource=resource) == []
    assert verdict("sandboxes", user=ALICE, new=SANDBOX, old=web, resource=resource) == MADE


def test_no_binding_makes_a_pod_a_sandbox(verdict: Verdict) -> None:
    """The API server copies the labels of a Binding to the pod."""
    target = {"target": {"kind": "Node", "name": "n"}}
    forged = {"metadata": {"name": "web", "labels": {LABEL_NAME: SANDBOX_NAME}}, **target}
    plain = {"metadata": {"name": "default-x7k2mq"}, **target}
    placed = {"metadata": {"name": "x", "labels": {"topology.kubernetes.io/zone": "a"}}, **target}
    assert verdict("sandboxes", user=ALICE, new=forged, resource="pods/binding") == MADE
    assert verdict("sandboxes", user=SCHEDULER, new=plain, resource="pods/binding") == []
    assert verdict("sandboxes", user=SCHEDULER, new=placed, resource="pods/binding") == []


def test_kubelet_and_scheduler_report_the_state_of_a_sandbox(verdict: Verdict) -> None:
    reported = SANDBOX | {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for user in (KUBELET, SCHEDULER, "system:serviceaccount:kube-system:pod-garbage-collector"):
        assert verdict("sandboxes", user=user, new=reported, old=SANDBOX, resource="pods/status") == []


def network_policy(selector: Object, **rules: Any) -> Object:
    return {"metadata": {}, "spec": {"podSelector": selector, **rules}}


def expression(operator: str, *values: str, key: str = LABEL_NAME) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator} | ({"values": list(values)} if values else {})]}


@pytest.mark.parametrize(
    ("selector", "excludes"),
    [
        ({}, False),
        ({"matchLabels": {"app": "web"}}, False),
        ({"matchLabels": {LABEL_NAME: SANDBOX_NAME}}, False),
        ({"matchLabels": {LABEL_NAME: "web"}}, True),
        ({"matchLabels": {LABEL_NAME: SERVER}}, False),
        (expression("NotIn", SANDBOX_NAME, SERVER), True),
        (expression("NotIn", SANDBOX_NAME), False),
        (expression("NotIn", SERVER), False),
        (expression("NotIn", "web"), False),
        (expression("In", "web", "db"), True),
        (expression("In", "web", SANDBOX_NAME), False),
        (expression("In", "web", SERVER), False),
        (expression("DoesNotExist"), True),
        (expression("Exists"), False),
        (expression("NotIn", SANDBOX_NAME, key="app"), False),
    ],
)
def test_a_network_policy_of_others_opens_no_sandbox(verdict: Verdict, selector: Object, excludes: bool) -> None:
    def refused(new: Object, old: Object | None = None, user: str = ALICE) -> bool:
        return verdict("networkpolicies", user=user, new=new, old=old) != []

    rules: list[Object]
    for rules in ([{}], [{"ports": [{"port": 80}]}]):
        assert refused(network_policy(selector, ingress=rules)) is not excludes
        assert refused(network_policy(selector, egress=rules)) is not excludes
    opened = network_policy(selector, egress=[{}])
    assert not refused(opened, user=OPERATOR)
    assert not refused(network_policy(selector, policyTypes=["Ingress", "Egress"])), "it denies and opens nothing"
    assert not refused(network_policy(selector, ingress=[], egress=[]))
    assert not refused(opened | {"metadata": {"finalizers": []}}, old=opened), "the garbage collector can finish"
    assert refused(opened, old=network_policy(selector)) is not excludes


def secret(name: str, **fields: Any) -> Object:
    return {"metadata": {"name": name}, "type": "Opaque"} | fields


def test_the_operator_creates_the_releases_keys_and_no_other_secret(verdict: Verdict) -> None:
    for name in ("sandbox-key", "api-keys", "initial-api-key"):
        assert verdict("secrets", user=OPERATOR, new=secret(f"mcp-exec-{name}"), resource="secrets") == []
    (said,) = verdict("secrets", user=OPERATOR, new=secret("another"), resource="secrets")
    assert said.startswith("the operator may create only these Secrets, of type Opaque: mcp-exec-sandbox-key, ")
    token = secret("mcp-exec-api-keys", type="kubernetes.io/service-account-token")
    assert verdict("secrets", user=OPERATOR, new=token, resource="secrets") == [said], "Kubernetes writes a token to it"
    unnamed = {"metadata": {"generateName": "mcp-exec-"}, "type": "Opaque"}
    assert verdict("secrets", user=OPERATOR, new=unnamed, resource="secrets") == [said]
    assert verdict("secrets", user=ALICE, new=secret("another"), resource="secrets") == []


def test_the_operator_makes_no_secret_if_the_user_has_made_them(helm3: Render) -> None:
    values = {"sandboxKey": {"existingSecret": "a"}, "gateway": {"apiKeys": {"existingSecret": "b"}}}
    names = helm3(values, "--kube-version", "1.30.0").names("ValidatingAdmissionPolicy")
    assert len(names) == 10
    assert "mcp-exec-secrets" not in names


def test_the_policies_hold_where_they_are_about_alone_and_fail_closed(rendered: Rendered) -> None:
    policies = rendered.names("ValidatingAdmissionPolicy")
    assert len(policies) == 11
    assert sorted({each["spec"]["policyName"] for each in rendered.all("ValidatingAdmissionPolicyBinding")}) == policies
    for binding in rendered.all("ValidatingAdmissionPolicyBinding"):
        assert binding["spec"]["validationActions"] == ["Deny"]
        if binding["spec"]["policyName"] == "mcp-exec-definitions":
            assert "matchResources" not in binding["spec"], "definitions are in no namespace"
            continue
        (one, *_) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        about_keys = binding["spec"]["policyName"] == "mcp-exec-secrets"
        assert (one["operator"], one["values"]) == ("In", ["mcp-exec-system"] if about_keys else ["agents", "batch"])
    for policy in rendered.all("ValidatingAdmissionPolicy"):
        assert policy["spec"]["failurePolicy"] == "Fail"


def find_bound(rendered: Rendered, labels: dict[str, str]) -> list[str]:
    """Return the policies that a namespace with these labels is bound by, each as often as it is."""

    def selects(expression: Object) -> bool:
        found = labels.get(expression["key"])
        return found in expression["values"] if expression["operator"] == "In" else found is None

    return sorted(
        binding["spec"]["policyName"]
        for binding in rendered.all("ValidatingAdmissionPolicyBinding")
        if "matchResources" in binding["spec"]
        and all(map(selects, binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]))
    )


def test_a_namespace_of_a_release_is_bound_by_the_policies_of_no_other(render: Render) -> None:
    values = {"admissionPolicy": {"enabled": True}}
    first, second = render(values), render({**values, "createNamespaces": False}, namespace="other")
    policies = [name for name in first.names("ValidatingAdmissionPolicy") if name not in APART]
    labels = first.one("Namespace", "agents")["metadata"]["labels"]
    assert find_bound(first, labels) == policies
    assert find_bound(second, labels) == []
    unlabelled = {"kubernetes.io/metadata.name": "agents"}
    assert find_bound(first, unlabelled) == policies, "without the label, protection is not lost"
    assert find_bound(second, unlabelled) == [f"{name}.other" for name in policies]


def test_a_long_name_of_a_release_fits_the_label(render: Render) -> None:
    names = {
        render({}, release="mcp-exec-of-the-department", namespace="n" * 62 + end)
        .one("Namespace", "agents")["metadata"]["labels"]["mcp-exec.dev/release"]
        for end in "ab"
    }  # fmt: skip
    assert len(names) == 2
    assert {len(name) for name in names} == {63}


@pytest.mark.parametrize(("name", "is_claim"), [("mcp-exec", True), ("another", False)])
def test_only_who_may_claim_a_namespace_writes_its_claim(verdict: Verdict, name: str, is_claim: bool) -> None:
    lease = {"metadata": {"name": name}}
    for old in (None, lease):
        assert bool(verdict("leases", user=ALICE, new=lease, old=old)) == is_claim
        assert verdict("leases", user=OPERATOR, new=lease, old=old, right=True) == []


@pytest.mark.parametrize(
    ("version", "values", "count"),
    [
        ("1.29.9", {}, 0),
        ("1.30.0-gke.100", {}, 11),
        ("1.30.0", {"admissionPolicy": {"enabled": False}}, 0),
        ("1.20.0", {"admissionPolicy": {"enabled": True}}, 11),
        ("1.30.0", {"crds": {"upgrade": False}}, 10),
        ("1.30.0", {"admissionPolicy": {"isolation": False}}, 8),
    ],
)
def test_a_cluster_gets_the_policies_that_it_has_or_that_it_is_said_to_have(
    helm3: Render, version: str, values: Object, count: int
) -> None:
    assert len(helm3(values, "--kube-version", version).all("ValidatingAdmissionPolicy")) == count
