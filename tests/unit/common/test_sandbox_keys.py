"""A rotation of the sandbox key: whoever verifies accepts each present key, and no other one."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

import pytest
from tests.support.grants import make_grant
from tests.support.mounts import write_version
from tests.support.until import until

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, ANNOTATION_CREATED, LABEL_CALLER
from mcp_exec_api.files import WorkspaceMode
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_broker.core.api import calls
from mcp_exec_broker.core.api.calls import DirectAuthenticator, GrantAuthenticator, RequestRefused
from mcp_exec_broker.features.files.api.auth import FilesAuthenticator
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.workspace.commit import PendingUploads
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.files import FilesGrant, SignedGrant, WorkspaceAccess
from mcp_exec_common.broker.grants import DirectGrant, Grant, GrantError, GrantSigner
from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.sandbox_keys import SandboxKeys, read_keys
from mcp_exec_common.supervisor.tokens import find_supervisor_token, supervisor_token, token_digest
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.files.artifacts import ArtifactAddress, LinkSigner
from mcp_exec_operator.core.pods.authenticity import PodAuthenticator
from mcp_exec_operator.core.pods.manifest import PoolIdentity

OLD, NEW = b"the old key" * 4, b"the new key" * 4
Object = dict[str, Any]
OWNER = {LABEL_CALLER: "team-a"}
EXPIRES = int(time()) + 24 * 3600
AT = "2026-11-23T10:00:00.000000Z"
READS_A_GRANT = re.compile(r"\.read\((?:\w*Grant), ")


@dataclass(frozen=True)
class Signed:
    """Something that is signed with the sandbox key."""

    sign: Callable[[SandboxKeys], Any]
    accepts: Callable[[SandboxKeys, Any], bool]


def _reads(kind: type[SignedGrant] | None) -> Callable[[SandboxKeys, str], bool]:
    def accepts(keys: SandboxKeys, token: str) -> bool:
        signer = GrantSigner(keys=keys)
        try:
            if kind is None:
                signer.read_service_token(token)
            else:
                signer.read(kind, token)
        except GrantError:
            return False
        return True

    return accepts


def _object(name: str, spec: Object) -> Object:
    annotations = {ANNOTATION_CREATED: AT}
    meta = {"name": name, "namespace": "agents", "creationTimestamp": "2026-11-23T10:00:01Z", "uid": "u"}
    return {"metadata": {**meta, "labels": OWNER, "annotations": annotations}, "spec": spec}


EXECUTION = _object("exec-1", {"code": "1", "poolRef": {"name": "default"}})
SKILL = _object("report-v1", {"name": "report", "version": 1, "description": "d", "code": "def run(): ..."})
REVIEW = {"decision": "Approve", "by": "ann", "at": AT, "comment": None}
DECISION = {"id": "a", "decision": "Approve", "by": "ann", "comment": ""}
ADDRESS = ArtifactAddress(namespace="agents", execution="exec-1", uid="u", id="x")
FILES = FilesGrant(
    namespace="agents",
    owner="0a" * 16,
    caller="0c" * 16,
    execution="u",
    workspace=WorkspaceAccess(name="data", mode=WorkspaceMode.WRITE),
    pod_address="127.0.0.1",
    replica="",
    expires=EXPIRES,
)
DIRECT = DirectGrant(namespace="agents", pool="default", caller="me", tools=[], pool_tools=PoolTools(), expires=EXPIRES)


def _with_proof(item: Object, proof: str) -> Object:
    meta = item["metadata"]
    return {**item, "metadata": {**meta, "annotations": {**meta["annotations"], ANNOTATION_CALLER_PROOF: proof}}}


def _pod(keys: SandboxKeys) -> Object:
    """A pod that was created, sealed and given to an owner."""
    digest = token_digest(supervisor_token(key=keys.signing, namespace="agents", pod="p"))
    env = [{"name": "MCP_EXEC_TOKEN_SHA256", "value": digest}]
    pod: Object = {"metadata": {"name": "p", "namespace": "agents", "uid": "u"}, "spec": {"containers": [{"env": env}]}}
    patch = PodAuthenticator(keys=keys).build_owner_patch(
        pod, PoolIdentity(namespace="agents", name="p", uid="pool-uid"), owner="o"
    )
    return {**pod, "metadata": {**pod["metadata"], **patch["metadata"]}}


def _knows(keys: SandboxKeys, pod: Object) -> bool:
    known = PodAuthenticator(keys=keys)
    answers = (known.claims_pool(pod, "pool-uid"), known.is_sealed(pod), known.read_owner(pod) == "o")
    assert len(set(answers)) == 1
    return all(answers)


def _is_link(keys: SandboxKeys, query: str) -> bool:
    values = dict(each.split("=") for each in query.partition("?")[2].split("&"))
    try:
        LinkSigner(keys=keys).verify(ADDRESS, expires=int(values["expires"]), signature=values["signature"])
    except HttpProblem as problem:
        return problem.status != 403
    return True


def _caller(keys: SandboxKeys, item: Object) -> bool:
    attestor = Attestor(keys=keys)
    answers = {attestor.read_caller(item), attestor.read_listed_caller(item["metadata"])}
    assert len(answers) == 1
    return answers == {"team-a"}


SIGNED = {
    "grant": Signed(lambda keys: GrantSigner(keys=keys).sign(make_grant()), _reads(Grant)),
    "files grant": Signed(lambda keys: GrantSigner(keys=keys).sign(FILES), _reads(FilesGrant)),
    "direct grant": Signed(lambda keys: GrantSigner(keys=keys).sign(DIRECT), _reads(DirectGrant)),
    "service": Signed(lambda keys: GrantSigner(keys=keys).sign_service_token("gateway"), _reads(None)),
    "caller": Signed(lambda keys: _with_proof(EXECUTION, Attestor(keys=keys).sign_caller(EXECUTION)), _caller),
    "author": Signed(
        lambda keys: _with_proof(SKILL, Attestor(keys=keys).sign_author(SKILL)),
        lambda keys, skill: Attestor(keys=keys).read_author(skill) == "team-a",
    ),
    "shipped skill": Signed(
        lambda keys: _with_proof(SKILL, Attestor(keys=keys).sign_shipped(SKILL)),
        lambda keys, skill: Attestor(keys=keys).is_shipped(skill),
    ),
    "review": Signed(
        lambda keys: {**REVIEW, "proof": Attestor(keys=keys).sign_review(REVIEW, uid="u", digest="d")},
        lambda keys, review: Attestor(keys=keys).is_proven_review(review, uid="u", digest="d"),
    ),
    "decision": Signed(
        lambda keys: {**DECISION, "proof": Attestor(keys=keys).sign_decision(DECISION, uid="u")},
        lambda keys, decision: Attestor(keys=keys).read_approver(decision, uid="u") == "ann",
    ),
    "link": Signed(lambda keys: LinkSigner(keys=keys).build_path(ADDRESS, seconds=60)[0], _is_link),
    "pod": Signed(_pod, _knows),
}


@pytest.mark.parametrize("name", SIGNED)
def test_whoever_is_at_another_step_of_a_rotation_accepts_what_is_signed(name: str) -> None:
    """In the order of a rotation. Two processes are at most one step apart."""
    steps = [SandboxKeys(OLD), SandboxKeys(OLD, NEW), SandboxKeys(NEW, OLD), SandboxKeys(NEW)]
    for number, signer in enumerate(steps):
        token = SIGNED[name].sign(signer)
        for verifier in steps[max(0, number - 1) : number + 2]:
            assert SIGNED[name].accepts(verifier, token)


@pytest.mark.parametrize("name", SIGNED)
def test_what_a_key_has_signed_is_refused_when_the_key_is_gone(name: str) -> None:
    keys = SandboxKeys(NEW, OLD)
    token = SIGNED[name].sign(SandboxKeys(OLD))
    assert SIGNED[name].accepts(keys, token)
    keys.replace((NEW,))
    assert not SIGNED[name].accepts(keys, token)


def test_a_grant_of_files_that_was_verified_before_is_refused_too() -> None:
    keys = SandboxKeys(NEW, OLD)
    authenticator = FilesAuthenticator(
        signer=GrantSigner(keys=keys),
        namespaces=frozenset({"agents"}),
        replica="",
        checks_address=False,
        pending=PendingUploads(),
    )
    grant = FILES.model_copy(update={"expires": int(time()) + 60})
    header = f"Bearer {GrantSigner(keys=SandboxKeys(OLD)).sign(grant)}"
    assert authenticator.authenticate(header, peer="127.0.0.1") == grant
    keys.replace((NEW,))
    with pytest.raises(FilesRefused, match="the token is not valid"):
        authenticator.authenticate(header, peer="127.0.0.1")


def test_a_grant_that_was_verified_before_is_refused_too() -> None:
    keys = SandboxKeys(NEW, OLD)
    authenticator = GrantAuthenticator(signer=GrantSigner(keys=keys), replica="", checks_address=False)
    header = f"Bearer {GrantSigner(keys=SandboxKeys(OLD)).sign(make_grant())}".encode()
    assert authenticator.authenticate(header, peer="10.0.0.1").execution == "uid-1"
    keys.replace((NEW,))
    with pytest.raises(RequestRefused, match="the token is not valid"):
        authenticator.authenticate(header, peer="10.0.0.1")


def test_a_grant_of_direct_calls_that_was_verified_before_is_refused_too() -> None:
    keys = SandboxKeys(NEW, OLD)
    authenticator = DirectAuthenticator(signer=GrantSigner(keys=keys))
    grant = DIRECT.model_copy(update={"expires": int(time()) + 60})
    header = f"Bearer {GrantSigner(keys=SandboxKeys(OLD)).sign(grant)}".encode()
    assert authenticator.authenticate(header, peer="10.0.0.1") == grant
    keys.replace((NEW,))
    with pytest.raises(RequestRefused, match="the token is not valid"):
        authenticator.authenticate(header, peer="10.0.0.1")


def test_whoever_reads_grants_keeps_them_in_the_cache_that_forgets_them_with_the_keys() -> None:
    """Another cache would accept what a former key has signed."""
    modules = Path(calls.__file__).parents[2].rglob("*.py")
    readers = {path.name: path.read_text() for path in modules if READS_A_GRANT.search(path.read_text())}
    assert readers.keys() == {"calls.py", "auth.py"}
    for text in readers.values():
        assert text.count("VerifiedGrants(") == len(READS_A_GRANT.findall(text))
        assert "cache" not in "".join(line for line in text.splitlines() if "import" in line).lower()


def test_a_pod_is_reached_with_the_key_that_its_token_is_derived_from() -> None:
    of_old = supervisor_token(key=OLD, namespace="agents", pod="p")
    for keys in (SandboxKeys(OLD), SandboxKeys(OLD, NEW), SandboxKeys(NEW, OLD)):
        digest = token_digest(of_old)
        assert find_supervisor_token(keys=keys, namespace="agents", pod="p", digest=digest) == of_old
        # of a pod that is no pod of the release
        unknown = find_supervisor_token(keys=keys, namespace="agents", pod="p", digest="0" * 64)
        assert unknown == supervisor_token(key=keys.signing, namespace="agents", pod="p")


@pytest.mark.parametrize(
    ("entries", "keys"),
    [
        ({"key": b"a\n"}, (b"a",)),
        ({"key": b"a", "next-key": b"b"}, (b"a", b"b")),
        ({"key": b"b", "previous-key": b"a", "other": b"c"}, (b"b", b"a")),
        ({"key": b"a", "next-key": b"", "previous-key": b"a"}, (b"a",)),
    ],
)
def test_the_entry_key_signs_and_the_others_are_accepted(entries: dict[str, bytes], keys: tuple[bytes, ...]) -> None:
    assert read_keys(entries) == keys


@pytest.mark.parametrize("entries", [{}, {"key": b""}, {"key": b" \n"}, {"next-key": b"a"}])
def test_without_a_key_to_sign_with_there_are_no_keys(entries: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="no entry `key`"):
        read_keys(entries)


def test_no_key_is_in_a_description() -> None:
    keys = SandboxKeys(NEW, OLD)
    assert NEW.decode() not in f"{keys!r} {keys.describe()} {GrantSigner(keys=keys)} {Attestor(keys=keys)}"


def test_a_mounted_folder_is_read_in_one_version(tmp_path: Path) -> None:
    write_version(tmp_path, {"key": b"a", "next-key": b"b"})
    assert MountedFolder(path=tmp_path).read() == {"key": b"a", "next-key": b"b"}
    write_version(tmp_path, {"key": b"b", "previous-key": b"a"})
    assert MountedFolder(path=tmp_path).read() == {"key": b"b", "previous-key": b"a"}


def test_a_folder_that_is_no_mount_is_read_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"a")
    (tmp_path / "folder").mkdir()
    assert MountedFolder(path=tmp_path).read() == {"key": b"a"}


@pytest.mark.parametrize("files", [{"key": 3 * 2**20}, {f"file-{number}": 1 for number in range(300)}])
def test_a_folder_that_is_larger_than_a_secret_is_refused(tmp_path: Path, files: dict[str, int]) -> None:
    for name, size in files.items():
        (tmp_path / name).write_bytes(b"x" * size)
    with pytest.raises(ValueError, match="more than 256 files or 2097152 bytes"):
        MountedFolder(path=tmp_path).read()


async def test_a_mounted_folder_is_followed_and_what_is_refused_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_version(tmp_path, {"key": b"a"})
    seen: list[tuple[bytes, ...]] = []
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.001)
    folder = MountedFolder(path=tmp_path)
    following = asyncio.create_task(folder.follow(lambda entries: seen.append(read_keys(entries))))
    await until(lambda: len(seen) == 1)
    write_version(tmp_path, {"other": b"b"})
    await until(lambda: "no entry `key`" in caplog.text)
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to("gone")
    await until(lambda: "No such file" in caplog.text)
    write_version(tmp_path, {"key": b"b", "previous-key": b"a"})
    await until(lambda: len(seen) == 2)
    following.cancel()
    assert seen == [(b"a",), (b"b", b"a")]
    assert caplog.text.count("its last content stays in use") == 2
