"""The grant of files."""

from typing import Any

import pytest
from pydantic import ValidationError

from mcp_exec_api.files import WorkspaceMode
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.files import FilesGrant, WorkspaceAccess
from mcp_exec_common.broker.grants import DirectGrant, Grant, GrantError, GrantSigner
from mcp_exec_common.sandbox_keys import SandboxKeys

SIGNER = GrantSigner(keys=SandboxKeys(b"k" * 32))
EXPIRES = 4_102_444_800  # the year 2100: modules are read minutes before their tests run
FILES: dict[str, Any] = {
    "namespace": "agents",
    "owner": "0a" * 16,
    "caller": "0c" * 16,
    "execution": "uid-1",
    "workspace": WorkspaceAccess(name="data", mode=WorkspaceMode.WRITE),
    "pod_address": "127.0.0.1",
    "replica": "",
    "expires": EXPIRES,
}
RIGHTS: dict[str, Any] = {
    "namespace": "agents",
    "pool": "default",
    "caller": "me",
    "tools": [],
    "pool_tools": PoolTools(),
    "expires": EXPIRES,
}


def test_a_grant_of_files_is_read_as_it_was_signed() -> None:
    grant = FilesGrant(**FILES)
    assert SIGNER.read(FilesGrant, SIGNER.sign(grant)) == grant


@pytest.mark.parametrize(
    "token",
    [
        SIGNER.sign(Grant(**RIGHTS, execution="u", name="n", tool_calls=1, pod_address="", replica="")),
        SIGNER.sign(DirectGrant(**RIGHTS)),
        SIGNER.sign_service_token("gateway"),
        GrantSigner(keys=SandboxKeys(b"x" * 32)).sign(FilesGrant(**FILES)),
    ],
)
def test_no_other_token_passes_for_a_grant_of_files(token: str) -> None:
    with pytest.raises(GrantError):
        SIGNER.read(FilesGrant, token)


def test_a_grant_of_files_passes_for_no_other_token() -> None:
    token = SIGNER.sign(FilesGrant(**FILES))
    for kind in (Grant, DirectGrant):
        with pytest.raises(GrantError):
            SIGNER.read(kind, token)
    with pytest.raises(GrantError):
        SIGNER.read_service_token(token)


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": "../" + "a" * 29},
        {"owner": "0A" * 16},
        {"execution": "../x"},
        {"execution": "a/b"},
        {"execution": ""},
        {"workspace": {"name": "../x", "mode": "Write"}},
        {"workspace": {"name": "x" * 51, "mode": "Write"}},
        {"workspace": {"name": "x", "mode": "Admin"}},
        {"workspace": {"name": "x", "mode": "Read", "version": 0}},
    ],
)
def test_a_grant_that_could_name_another_place_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FilesGrant(**(FILES | changes))
