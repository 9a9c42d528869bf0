"""Grants of executions, as the operator would write them."""

from time import time
from typing import Any

from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.grants import Grant


def make_grant(**changes: Any) -> Grant:
    """Return the grant of an execution that may call every tool for the next minute."""
    given: dict[str, Any] = {
        "execution": "uid-1",
        "name": "exec-1",
        "namespace": "agents",
        "pool": "default",
        "tools": ["*.*"],
        "pool_tools": PoolTools(),
        "tool_calls": 100,
        "pod_address": "",
        "replica": "",
        "expires": int(time()) + 60,
    }
    return Grant(**(given | changes))
