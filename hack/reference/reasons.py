"""docs/reference/reasons.md: the reasons of phases, conditions and Events, from their declarations."""

from collections.abc import Iterable
from typing import Final

from hack.reference.markdown import GENERATED, build_table, format_code

from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason, SessionReason
from mcp_exec_api.reasons.pool import PoolReason
from mcp_exec_api.reasons.server import ServerReason

_HEAD: Final = f"""{GENERATED}# Reasons and Events

`mcp-exec doctor` prints what to do about each reason that it finds. New versions may add reasons.

## Of an execution

`status.reason` of a [CodeExecution](../kubectl/executions.md), and `reason` of the HTTP API. A run that succeeded has
none.

"""
_SESSIONS: Final = "\n## Of a session\n\n`status.reason` of a [SandboxSession](../services/sessions.md).\n\n"
_SERVERS: Final = (
    "\n## Of a tool server\n\nThe conditions `Available` and `CredentialsFound` of a"
    " [ToolServer](../platform/tool-servers.md). They are True with the reasons `Listed` and `Found`.\n\n"
)
_POOLS: Final = """
## Of a pool

Conditions of a [SandboxPool](../platform/pools.md). `Ready` is False with the reason of an execution (above) if
pods cannot start.

"""
_EVENTS: Final = """
## Events

`kubectl events --for KIND/NAME` prints them. Each execution that waits long or fails, other than by its own code, has
a Warning with its reason (above). A pool has one with the reason of `Ready`, `Isolated` or `PodsTrusted` if that
condition is False and the cause is not a normal start. A rollout has one with each new phase, a Warning for
`RolledBack` and `Aborted`. A namespace has at most 20 Events of executions at once and then one every two seconds.
These have reasons of their own:

"""
_HOLDS: Final = {True: "True", False: "False", None: "either"}


def build_page() -> str:
    """Build the page."""
    conditions = [
        (format_code(each.condition), _HOLDS[each.holds], format_code(each), each.meaning) for each in PoolReason
    ]
    events = [(each.about, format_code(each), each.type, each.meaning) for each in EventReason]
    return "".join(
        [
            _HEAD + _explain(Reason),
            _SESSIONS + _explain(SessionReason),
            _SERVERS + _explain(ServerReason),
            _POOLS + build_table(("condition", "is", "reason", "meaning"), conditions),
            _EVENTS + build_table(("object", "reason", "type", "meaning"), events),
        ]
    )


def _explain(reasons: Iterable[Reason | SessionReason | ServerReason]) -> str:
    rows = [(format_code(each), each.meaning, each.remedy) for each in reasons if each]
    return build_table(("reason", "what happened", "what to do"), rows)
