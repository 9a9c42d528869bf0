"""Secrets with the release's keys: created where they are absent, kept where they are, restored, and revoked."""

import asyncio
import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from tests.component.operator.conftest import settings
from tests.support.api_server import Fault
from tests.support.world import KEY, KEY_SECRET, NAMESPACE, SECRETS, SYSTEM, World

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, ANNOTATION_CREATED
from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.skill import SkillSpec
from mcp_exec_common.api_keys import digest_key
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import build_skill
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.objects import is_release_secret
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.core.auth.api_keys import ApiKeyStore
from mcp_exec_operator.cluster.keys.release import ReleaseKeys
from mcp_exec_operator.cluster.keys.rotation import ANNOTATION_ROTATE, ANNOTATION_SINCE, Step
from mcp_exec_operator.cluster.keys.secrets import encode
from mcp_exec_operator.cluster.preflight import CannotStart
from mcp_exec_operator.metrics import Metrics

Object = dict[str, Any]
ACCOUNTS = resource_path("serviceaccounts", namespace=SYSTEM)
SKILLS = custom_resource_path("skills", namespace=NAMESPACE)
API_KEYS, INITIAL = "api-keys", "initial-api-key"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRST: Object = {"namespace": "agents", "limits": {"maxConcurrent": 50}, "validDays": 90}


@pytest.fixture
async def kube(world: World) -> Any:
    world.put(ACCOUNTS, {"metadata": {"name": "operator"}})
    async with aiohttp.ClientSession(base_url=world.url) as session:
        yield KubeClient(session=session, credentials=KubeCredentials(server=""), retry_delays=(), timeout_seconds=5)


def keys(kube: KubeClient, *, days: int = 0, **changes: Any) -> ReleaseKeys:
    """The keys as an operator has them who starts so many days later, by the chart's values or by others."""
    given: Object = {
        "create_sandbox_key": True,
        "api_keys_secret": API_KEYS,
        "initial_api_key_secret": INITIAL,
        "initial_api_key": FIRST,
        "service_account": "operator",
    }
    made = settings(**(given | changes))
    return ReleaseKeys(
        settings=made,
        kube=kube,
        metrics=Metrics(),
        served=made.namespaces,
        clock=lambda: NOW + timedelta(days=days),
    )


def secret(world: World, name: str) -> dict[str, str]:
    data = world.collections[SECRETS][name].get("data") or {}
    return {entry: base64.b64decode(content).decode() for entry, content in data.items()}


def accepted(world: World, *, days: int = 0) -> str:
    """Return the name that the gateway accepts the key whose text is stored, so many days later."""
    store = ApiKeyStore(clock=lambda: NOW + timedelta(days=days))
    store.on_change(world.collections[SECRETS][API_KEYS], deleted=False)
    found = store.find(secret(world, INITIAL)["api-key"])
    return found.name if found is not None else ""


async def test_a_first_start_creates_all_keys_and_a_second_one_changes_none(world: World, kube: KubeClient) -> None:
    world.remove(SECRETS, KEY_SECRET)
    made = await keys(kube).obtain_sandbox_keys()
    await keys(kube).check(made)
    assert len(made.signing) == 64
    assert secret(world, KEY_SECRET)["key"].encode() == made.signing
    assert accepted(world) == "initial"
    entry = json.loads(secret(world, API_KEYS)["initial"])
    assert entry == {
        "sha256": digest_key(secret(world, INITIAL)["api-key"]),
        "namespace": "agents",
        "limits": {"maxConcurrent": 50},
        "approver": False,
        "expiresAt": "2026-05-30T12:00:00Z",
    }
    before = dict(world.collections[SECRETS])
    later = keys(kube, days=30, initial_api_key={**FIRST, "limits": {}, "validDays": 1})
    assert (await later.obtain_sandbox_keys()).signing == made.signing
    await later.check(made)
    assert world.collections[SECRETS] == before
    assert (accepted(world, days=89), accepted(world, days=90)) == ("initial", "")


async def test_a_key_without_a_namespace_gets_the_first_that_is_served(world: World, kube: KubeClient) -> None:
    first = keys(kube, namespaces=("batch", "agents"), initial_api_key={**FIRST, "namespace": ""})
    await first.check(SandboxKeys(KEY))
    assert json.loads(secret(world, API_KEYS)["initial"])["namespace"] == "batch"
    await keys(kube, namespaces=("agents", "batch"), initial_api_key={**FIRST, "namespace": ""}).check(SandboxKeys(KEY))
    assert json.loads(secret(world, API_KEYS)["initial"])["namespace"] == "batch"


async def test_what_is_created_is_known_as_the_releases_and_all_but_the_api_keys_go_with_it(
    world: World, kube: KubeClient
) -> None:
    world.remove(SECRETS, KEY_SECRET)
    await keys(kube).check(await keys(kube).obtain_sandbox_keys())
    uid = world.collections[ACCOUNTS]["operator"]["metadata"]["uid"]
    owners = {name: item["metadata"].get("ownerReferences") for name, item in world.collections[SECRETS].items()}
    account = [{"apiVersion": "v1", "kind": "ServiceAccount", "name": "operator", "uid": uid}]
    assert owners == {KEY_SECRET: account, INITIAL: account, API_KEYS: None}
    for item in world.collections[SECRETS].values():
        assert is_release_secret(item, ())
        assert item["type"] == "Opaque"


async def test_operators_that_start_at_once_use_the_same_keys(world: World, kube: KubeClient) -> None:
    world.remove(SECRETS, KEY_SECRET)
    found = await asyncio.gather(*(keys(kube).obtain_sandbox_keys() for _ in range(5)))
    assert len({each.signing for each in found}) == 1
    await asyncio.gather(*(keys(kube).check(found[0]) for _ in range(5)))
    assert accepted(world) == "initial"


@pytest.mark.parametrize("step", ["after the entry", "before the text", "the text, without an answer"])
async def test_an_operator_that_dies_in_between_leaves_no_key_that_is_refused(
    world: World, kube: KubeClient, step: str
) -> None:
    if step == "the text, without an answer":
        world.put(SECRETS, {"metadata": {"name": API_KEYS}})
        world.faults += [Fault("POST", "/secrets", 409), Fault("POST", "/secrets", "lost after")]
    elif step == "before the text":
        world.faults.append(Fault("GET", "/serviceaccounts/operator", 503))
    else:
        world.put(SECRETS, {"metadata": {"name": API_KEYS}})
        world.faults += [Fault("POST", "/secrets", 409), Fault("POST", "/secrets", 503)]
    await keys(kube).check(SandboxKeys(KEY))
    await keys(kube).check(SandboxKeys(KEY))
    assert accepted(world) == "initial"


async def test_a_deleted_sandbox_key_comes_back_as_it_was(world: World, kube: KubeClient) -> None:
    world.remove(SECRETS, KEY_SECRET)
    await keys(kube).check(SandboxKeys(KEY))
    assert secret(world, KEY_SECRET)["key"].encode() == KEY


async def test_the_leader_restores_what_is_deleted_while_it_leads(world: World, kube: KubeClient) -> None:
    running = asyncio.create_task(replace(keys(kube), check_seconds=0.01).run(SandboxKeys(KEY)))
    for name in (KEY_SECRET, API_KEYS, INITIAL):
        await world.until(lambda: len(world.collections[SECRETS]) == 3)
        world.remove(SECRETS, name)
    await world.until(lambda: len(world.collections[SECRETS]) == 3 and accepted(world) == "initial")
    running.cancel()


@pytest.mark.parametrize("own", [True, False], ids=["own", "of somebody else"])
async def test_sandbox_keys_that_another_has_replaced_are_kept_and_used(
    world: World, kube: KubeClient, own: bool, caplog: pytest.LogCaptureFixture
) -> None:
    in_use = SandboxKeys(KEY)
    data = {"key": b"another", "next-key": b"the next one", "previous-key": KEY}
    world.merge(SECRETS, KEY_SECRET, {"data": {name: base64.b64encode(text).decode() for name, text in data.items()}})
    await keys(kube, create_sandbox_key=own).check(in_use)
    assert list(in_use) == [b"another", b"the next one", KEY]
    assert secret(world, KEY_SECRET) == {name: text.decode() for name, text in data.items()}
    assert "none of the former" not in caplog.text
    world.merge(SECRETS, KEY_SECRET, {"data": {**dict.fromkeys(data), "key": base64.b64encode(b"a third").decode()}})
    await keys(kube, create_sandbox_key=own).check(in_use)
    assert list(in_use) == [b"a third"]
    assert "none of the former keys" in caplog.text


async def test_sandbox_keys_that_cannot_be_read_stay_in_use(
    world: World, kube: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    in_use = SandboxKeys(KEY)
    world.merge(SECRETS, KEY_SECRET, {"data": {"key": ""}})
    await keys(kube).check(in_use)
    world.merge(SECRETS, KEY_SECRET, {"data": {"key": "&"}})
    await keys(kube).check(in_use)
    world.faults.append(Fault("GET", f"/secrets/{KEY_SECRET}", 503))
    await keys(kube).check(in_use)
    world.remove(SECRETS, KEY_SECRET)
    await keys(kube, create_sandbox_key=False).check(in_use)
    assert list(in_use) == [KEY]
    assert caplog.text.count("so those in use stay") == 4


async def test_keys_of_users_stay_and_a_deleted_text_makes_a_new_first_key(world: World, kube: KubeClient) -> None:
    await keys(kube).check(SandboxKeys(KEY))
    world.merge(SECRETS, API_KEYS, {"data": {"billing": "e30="}})
    first = secret(world, INITIAL)["api-key"]
    world.remove(SECRETS, INITIAL)
    await keys(kube, days=80).check(SandboxKeys(KEY))
    assert secret(world, INITIAL)["api-key"] != first
    assert set(secret(world, API_KEYS)) == {"initial", "billing"}
    assert (accepted(world, days=169), accepted(world, days=170)) == ("initial", "")


async def test_a_first_key_whose_entry_was_removed_stays_revoked(world: World, kube: KubeClient) -> None:
    await keys(kube).check(SandboxKeys(KEY))
    world.merge(SECRETS, API_KEYS, {"data": {"initial": None}})
    await keys(kube).check(SandboxKeys(KEY))
    assert secret(world, API_KEYS) == {}


async def test_deleted_api_keys_come_back_with_the_first_key_and_its_expiry(world: World, kube: KubeClient) -> None:
    await keys(kube).check(SandboxKeys(KEY))
    world.remove(SECRETS, API_KEYS)
    await keys(kube, days=80).check(SandboxKeys(KEY))
    assert (accepted(world, days=89), accepted(world, days=90)) == ("initial", "")


async def test_without_a_first_key_there_is_an_empty_secret_for_others(world: World, kube: KubeClient) -> None:
    await keys(kube, initial_api_key=None).check(SandboxKeys(KEY))
    assert secret(world, API_KEYS) == {}
    assert INITIAL not in world.collections[SECRETS]


async def test_a_first_key_that_the_settings_no_longer_have_is_revoked(world: World, kube: KubeClient) -> None:
    await keys(kube).check(SandboxKeys(KEY))
    world.merge(SECRETS, API_KEYS, {"data": {"billing": "e30="}})
    await keys(kube, initial_api_key=None).check(SandboxKeys(KEY))
    assert set(secret(world, API_KEYS)) == {"billing"}
    assert INITIAL not in world.collections[SECRETS]


async def test_a_first_key_may_never_expire_and_be_an_approvers(world: World, kube: KubeClient) -> None:
    first = {"namespace": "agents", "approver": True, "limits": {"tools": []}, "validDays": 0}
    await keys(kube, initial_api_key=first).check(SandboxKeys(KEY))
    entry = json.loads(secret(world, API_KEYS)["initial"])
    assert (entry["approver"], entry["limits"], "expiresAt" in entry) == (True, {"tools": []}, False)
    assert accepted(world, days=30_000) == "initial"


async def test_secrets_of_the_user_are_read_and_nothing_is_written(world: World, kube: KubeClient) -> None:
    ours = keys(kube, create_sandbox_key=False, api_keys_secret="", initial_api_key_secret="", initial_api_key=None)
    assert list(await ours.obtain_sandbox_keys()) == [KEY]
    await ours.check(SandboxKeys(KEY))
    assert [seen.method for seen in world.seen] == ["GET", "GET"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "Secret sandbox-key does not exist in namespace mcp-exec-system"),
        ({}, "Secret sandbox-key: there is no entry `key`, or an empty one"),
        ({"key": "ICAK"}, "Secret sandbox-key: there is no entry `key`, or an empty one"),
    ],
)
async def test_a_missing_key_of_the_user_ends_the_wait_with_its_name(
    world: World, kube: KubeClient, data: Object | None, said: str
) -> None:
    world.remove(SECRETS, KEY_SECRET)
    if data is not None:
        world.put(SECRETS, {"metadata": {"name": KEY_SECRET}, "data": data})
    with pytest.raises(CannotStart, match=said):
        await keys(kube, create_sandbox_key=False, api_wait_seconds=0.01).obtain_sandbox_keys()


async def test_a_refused_secret_is_reported_and_tried_again(
    world: World, kube: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    world.faults.append(Fault("POST", "/secrets", 403, message="secrets is forbidden"))
    await keys(kube).check(SandboxKeys(KEY))
    assert "secrets is forbidden" in caplog.text
    await keys(kube).check(SandboxKeys(KEY))
    assert accepted(world) == "initial"


def set_since(world: World, *, days: float) -> None:
    """Let the Secret have its keys for so many days at the time of the tests."""
    since = micro_time(NOW - timedelta(days=days))
    world.merge(SECRETS, KEY_SECRET, {"metadata": {"annotations": {ANNOTATION_SINCE: since}}})


async def test_a_rotation_on_demand_keeps_two_keys_until_nothing_needs_the_former_one(
    world: World, kube: KubeClient
) -> None:
    in_use, ours = SandboxKeys(KEY), keys(kube)
    await ours.check(in_use)
    await ours.check(in_use)
    assert list(in_use) == [KEY]
    world.merge(SECRETS, KEY_SECRET, {"metadata": {"annotations": {ANNOTATION_ROTATE: "now"}}})
    await ours.check(in_use)
    signing, new = in_use
    assert (signing, secret(world, KEY_SECRET)) == (KEY, {"key": KEY.decode(), "next-key": new.decode()})
    assert ANNOTATION_ROTATE not in world.collections[SECRETS][KEY_SECRET]["metadata"]["annotations"]
    set_since(world, days=0.01)
    await ours.check(in_use)
    assert list(in_use) == [new, KEY]
    assert secret(world, KEY_SECRET) == {"key": new.decode(), "previous-key": KEY.decode()}
    set_since(world, days=7)
    await ours.check(in_use)
    assert list(in_use) == [new, KEY]
    set_since(world, days=8)
    await ours.check(in_use)
    assert list(in_use) == [new]
    assert secret(world, KEY_SECRET) == {"key": new.decode()}
    steps = ours.metrics.registry.get_sample_value
    assert [steps("mcp_exec_sandbox_key_steps_total", {"step": step}) for step in Step] == [1, 1, 1, None]


async def test_a_key_is_replaced_at_its_age(world: World, kube: KubeClient) -> None:
    in_use = SandboxKeys(KEY)
    ours = keys(kube, sandbox_key_rotate_days=30)
    set_since(world, days=29)
    await ours.check(in_use)
    assert list(in_use) == [KEY]
    set_since(world, days=30)
    await ours.check(in_use)
    assert len(list(in_use)) == 2


async def test_two_leaders_at_once_make_one_step(world: World, kube: KubeClient) -> None:
    set_since(world, days=90)
    both = [SandboxKeys(KEY), SandboxKeys(KEY)]
    await asyncio.gather(*(keys(kube, sandbox_key_rotate_days=90).check(each) for each in both))
    await asyncio.gather(*(keys(kube, sandbox_key_rotate_days=90).check(each) for each in both))
    assert list(both[0]) == list(both[1])
    assert len(secret(world, KEY_SECRET)) == 2


async def test_keys_of_somebody_else_are_never_rotated(world: World, kube: KubeClient) -> None:
    set_since(world, days=1000)
    world.merge(SECRETS, KEY_SECRET, {"metadata": {"annotations": {ANNOTATION_ROTATE: "now"}}})
    await keys(kube, create_sandbox_key=False, sandbox_key_rotate_days=1).check(SandboxKeys(KEY))
    assert secret(world, KEY_SECRET) == {"key": KEY.decode()}


async def test_a_secret_that_is_deleted_during_a_rotation_comes_back_with_both_keys(
    world: World, kube: KubeClient
) -> None:
    in_use = SandboxKeys(b"the new one", KEY)
    world.remove(SECRETS, KEY_SECRET)
    await keys(kube).check(in_use)
    assert secret(world, KEY_SECRET) == {"key": "the new one", "previous-key": KEY.decode()}
    assert list(in_use) == [b"the new one", KEY]


async def test_the_former_key_signs_until_all_proofs_are_renewed_but_for_an_hour_at_most(
    world: World, kube: KubeClient
) -> None:
    former = Attestor(keys=SandboxKeys(KEY))
    manifest = build_skill(
        SkillSpec(name="report", version=1, description="d", code="def run(): ..."),
        namespace=NAMESPACE,
        author="team-a",
        attestor=former,
        moment=now(),
    )
    world.put(SKILLS, manifest)
    in_use = SandboxKeys(KEY, b"the new key")
    later = Attestor(keys=SandboxKeys(b"the new key"))
    world.merge(SECRETS, KEY_SECRET, {"data": {"next-key": encode(b"the new key")}})
    set_since(world, days=6 / 24 / 60)
    for minutes, code in ((6, 503), (59, 403), (61, 403)):
        set_since(world, days=minutes / 24 / 60)
        world.faults.append(Fault("PATCH", "/skills/report-v1", code))
        await keys(kube).check(in_use)
        assert in_use.signing == (KEY if minutes < 60 else b"the new key")
        assert later.read_author(world.collections[SKILLS]["report-v1"]) == "claimed:team-a"


async def test_the_new_key_waits_for_the_proofs_of_a_namespace_that_is_not_served(
    world: World, kube: KubeClient
) -> None:
    in_use, ours = SandboxKeys(KEY, b"the new key"), replace(keys(kube), named=lambda: (NAMESPACE, "batch"))
    world.merge(SECRETS, KEY_SECRET, {"data": {"next-key": encode(b"the new key")}})
    for minutes, signing in ((6, KEY), (59, KEY), (61, b"the new key")):
        set_since(world, days=minutes / 24 / 60)
        await replace(ours).check(in_use)
        assert in_use.signing == signing


async def test_proofs_are_renewed_after_a_conflict_and_before_the_new_key_signs(world: World, kube: KubeClient) -> None:
    manifest = build_skill(
        SkillSpec(name="report", version=1, description="d", code="def run(): ..."),
        namespace=NAMESPACE,
        author="team-a",
        attestor=Attestor(keys=SandboxKeys(KEY)),
        moment=now(),
    )
    world.put(SKILLS, manifest)
    in_use, ours = SandboxKeys(KEY, b"the new key"), keys(kube)
    world.merge(SECRETS, KEY_SECRET, {"data": {"next-key": encode(b"the new key")}})
    set_since(world, days=6 / 24 / 60)
    world.faults.append(Fault("PATCH", "/skills/report-v1", 409))
    await ours.check(in_use, renews=False)
    assert in_use.signing == KEY
    await ours.check(in_use)
    assert list(in_use) == [b"the new key", KEY]
    assert Attestor(keys=SandboxKeys(b"the new key")).read_author(world.collections[SKILLS]["report-v1"]) == "team-a"


@pytest.mark.parametrize("states_time", [False, True])
async def test_proofs_are_renewed_for_a_secret_of_somebody_else_in_the_minutes_after_its_change(
    world: World, kube: KubeClient, states_time: bool
) -> None:
    spec = SkillSpec(name="report", version=1, description="d", code="def run(): ...")
    attestor, later = Attestor(keys=SandboxKeys(KEY)), Attestor(keys=SandboxKeys(b"the new key"))
    world.put(SKILLS, build_skill(spec, namespace=NAMESPACE, author="team-a", attestor=attestor, moment=now()))
    world.merge(SKILLS, "report-v1", {"metadata": {"creationTimestamp": "2026-03-01T11:00:00Z"}})
    world.merge(SKILLS, "report-v1", {"metadata": {"annotations": {ANNOTATION_CREATED: "2026-03-01T11:00:00.000000Z"}}})
    stored = world.collections[SKILLS]["report-v1"]
    proof = attestor.sign_author(stored)
    world.merge(SKILLS, "report-v1", {"metadata": {"annotations": {ANNOTATION_CALLER_PROOF: proof}}})
    in_use, ours = SandboxKeys(KEY), keys(kube, create_sandbox_key=False)
    moment = NOW
    ours.clock = lambda: moment
    await ours.renew_proofs(in_use)
    world.put_keys({"key": b"the new key", "previous-key": KEY})
    if states_time:  # so that an operator that starts later knows it, too
        set_since(world, days=0)
        ours = keys(kube, create_sandbox_key=False)
        ours.clock = lambda: moment
    for minutes, author in ((0, "claimed:team-a"), (4, "claimed:team-a"), (6, "team-a")):
        moment = NOW + timedelta(minutes=minutes)
        await ours.check(in_use)
        await ours.renew_proofs(in_use)
        assert later.read_author(world.collections[SKILLS]["report-v1"]) == author
    started_later = keys(kube, create_sandbox_key=False)
    world.merge(SKILLS, "report-v1", {"metadata": {"annotations": {ANNOTATION_CALLER_PROOF: proof}}})
    moment = NOW + timedelta(minutes=16)
    await started_later.renew_proofs(in_use)
    await ours.renew_proofs(in_use)
    assert later.read_author(world.collections[SKILLS]["report-v1"]) == "claimed:team-a"
