"""Memory of the grants that the broker has verified."""

import tracemalloc
from time import time

from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_broker.api.calls import GrantAuthenticator
from mcp_exec_common.broker.grants import Grant, GrantSigner


def test_grants_with_many_long_patterns_take_bounded_memory() -> None:
    signer = GrantSigner(key=b"k" * 32)
    authenticator = GrantAuthenticator(signer=signer, replica="", checks_address=False)
    tracemalloc.start()
    try:
        for number in range(250):
            grant = Grant(
                execution=f"u-{number}",
                name="exec-1",
                namespace="agents",
                pool="default",
                tools=[f"box.{'x' * 170}{index:03}" for index in range(256)],
                pool_tools=PoolTools(),
                tool_calls=1,
                pod_address="",
                replica="",
                expires=int(time()) + 60,
            )
            header = f"Bearer {signer.sign_grant(grant)}".encode()
            assert authenticator.authenticate(header, peer="10.0.0.1").execution == grant.execution
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 20 * 1024 * 1024
