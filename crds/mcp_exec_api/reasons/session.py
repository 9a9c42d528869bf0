"""Reasons for the phase of a session."""

from typing import Self

from mcp_exec_api.meta import OpenEnum


class SessionReason(OpenEnum):
    """Reason for the phase of a SandboxSession, with its meaning and a remedy for the person who reads it.

    `make generate` writes the table of docs/services/sessions.md from here.
    """

    meaning: str
    remedy: str

    def __new__(cls, value: str, meaning: str = "", remedy: str = "") -> Self:
        """Create a member that equals its value and has a meaning and a remedy."""
        member = str.__new__(cls, value)
        member._value_, member.meaning, member.remedy = value, meaning, remedy
        return member

    NONE = ""
    NOT_OBSERVED = (
        "NotObserved",
        "no operator has seen it yet, which takes well under a second; if it stays, its namespace is not served",
        "use a served namespace, or add this one to the chart's `namespaces` (docs/platform/teams.md); else "
        "check that the operator runs",
    )
    POD_LOST = (
        "PodLost",
        "its pod ended or was deleted, or does not answer: memory of the container, eviction, a lost node, lost "
        "isolation",
        "the condition `Ready` has the cause; run the executions that prepare the session again",
    )
    INTERPRETER_LOST = (
        "InterpreterLost",
        "its interpreter ended: by `os._exit` or a crash, or because a run did not stop at its time limit, or exceeded "
        "the memory, processes or files that its pool allows",
        "run the executions that prepare the session again; raise the pool's limits if the code needs more",
    )
    POOL_DELETED = (
        "PoolDeleted",
        "its pool was deleted, and its pod with the pool",
        "create the pool again, or delete the session and use another pool",
    )
    IDLE = (
        "Idle",
        "no execution used it for `idleTimeoutSeconds`",
        "raise `idleTimeoutSeconds`; keep in a workspace what must stay",
    )
    TOO_OLD = (
        "TooOld",
        "`maxAgeSeconds` have passed since it got its pod",
        "raise `maxAgeSeconds`; keep in a workspace what must stay",
    )
    INVALID = (
        "Invalid",
        "its spec is invalid, or its name is not the one that its owner's executions look for",
        "follow the message of the condition `Ready`; an execution that names a session creates it with the right name",
    )
