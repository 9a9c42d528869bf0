"""Memory of the grants that the broker has verified."""

import tracemalloc

from tests.support.grants import make_grant

from mcp_exec_broker.core.api.calls import GrantAuthenticator
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.sandbox_keys import SandboxKeys


def test_grants_with_many_long_patterns_take_bounded_memory() -> None:
    signer = GrantSigner(keys=SandboxKeys(b"k" * 32))
    authenticator = GrantAuthenticator(signer=signer, replica="", checks_address=False)
    tracemalloc.start()
    try:
        for number in range(250):
            tools = [f"box.{'x' * 170}{index:03}" for index in range(256)]
            grant = make_grant(execution=f"u-{number}", tools=tools)
            header = f"Bearer {signer.sign(grant)}".encode()
            assert authenticator.authenticate(header, peer="10.0.0.1").execution == grant.execution
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 20 * 1024 * 1024
