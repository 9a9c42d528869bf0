"""Operations of a gateway or an API server that commands use."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from mcp_exec_client.cli.options import Object

NOT_OBSERVED: Final = "NotObserved"
"""Reason of an object that no operator has observed."""
RolloutAction: TypeAlias = Literal["promote", "pause", "resume", "abort"]


@dataclass(frozen=True, kw_only=True)
class ExecutionDraft:
    """An execution to create. Fields that are None or empty have the defaults of gateway and API server."""

    spec: Object
    """Fields of the CodeExecution's spec, in the API's own form."""
    name: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    """Labels without a prefix."""
    conversation: str | None = None
    use_case: str | None = None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which executions to list."""

    phase: str | None = None
    caller: str | None = None
    labels: str = ""
    """Label selector."""
    limit: int = 100


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Decision on a tool call that waits for an approval."""

    choice: Literal["Approve", "Deny"]
    comment: str | None = None
    arguments_digest: str | None = None
    """`argumentsDigest` of the approval that was read."""


class Backend(Protocol):
    """Executions of one namespace, as JSON objects in the form of the gateway's responses.

    All methods raise CommandError.
    """

    streams_output: bool
    """Whether `follow` has output before the end."""

    @property
    def namespace(self) -> str | None:
        """Namespace of the executions; None is that of the key."""

    async def submit(self, new: ExecutionDraft) -> Object:
        """Create an execution and return it without waiting for its end."""

    def follow(self, name: str) -> AsyncGenerator[Object, None]:
        """Yield the events of an execution from its start; the last one is `end`."""

    async def get(self, name: str, *, with_code: bool = False) -> Object:
        """Return an execution, with `code` if wanted."""

    async def list_executions(self, selection: Selection) -> list[Object]:
        """Return executions without their output, newest first."""

    async def cancel(self, name: str) -> Object:
        """Request the cancellation of an execution and return it."""

    async def delete(self, name: str) -> bool:
        """Delete an execution that has ended, and return whether it is gone already."""

    async def withdraw(self, name: str) -> str:
        """Remove an execution that no operator has observed, and return what became of it as a part of a sentence."""

    async def find_unserved(self) -> str | None:
        """Return that the namespace is not served, as a sentence, or None if it is served or that is not known."""

    async def list_approvals(self, name: str | None) -> list[Object]:
        """Return the approvals of an execution, or the pending ones of the namespace, each with its `execution`."""

    async def decide(self, name: str, approval: str, decision: Decision) -> Object:
        """Decide on a tool call and return the approval."""

    async def search_tools(self, query: str, *, limit: int, schemas: bool = False) -> list[Object]:
        """Return the tools that match, best first: `server`, `name`, `description`, `import`, and their schemas."""

    async def list_sessions(self, *, user: str | None) -> list[Object]:
        """Return sessions, of all users or of one, ordered by name."""

    async def get_session(self, name: str, *, user: str | None) -> Object:
        """Return a session."""

    async def reset_session(self, name: str, *, user: str | None) -> Object:
        """Request that a session starts afresh, and return it."""

    async def delete_session(self, name: str, *, user: str | None) -> None:
        """End a session and delete it."""

    async def list_pools(self) -> list[Object]:
        """Return pools, ordered by name."""

    async def list_rollouts(self) -> list[Object]:
        """Return rollouts, ordered by name."""

    async def get_rollout(self, name: str) -> Object:
        """Return a rollout."""

    async def steer_rollout(self, name: str, action: RolloutAction, *, to: str | None = None) -> Object:
        """Promote, pause, resume or abort a rollout, and return it. `to` is the stage to promote to."""


def is_unobserved(execution: Object) -> bool:
    """Return whether an execution, or a `status` event, has been seen by no operator."""
    return execution.get("phase") in (None, "", "Pending") and execution.get("reason") == NOT_OBSERVED
