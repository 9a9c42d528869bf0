"""Sessions: variables, imports and files that stay from one execution to the next."""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self, TypedDict, Unpack

from mcp_exec_api.wire.sessions import Session, SessionList
from mcp_exec_client.errors import Conflict, NotFound
from mcp_exec_client.options import RunOptions, describe_unknown, suggesting
from mcp_exec_client.state.channel import RequestChannel, quote_segment
from mcp_exec_client.state.results import drop_unset
from mcp_exec_client.types import Execution

_SESSIONS: Final = "/v1/sessions"


class SessionOptions(TypedDict, total=False):
    """Options of a new session. An option that is not given, or None, has the gateway's default."""

    pool: str | None
    """Pool whose pod the session keeps."""
    idle_timeout_seconds: int | None
    """Seconds without an execution until the session ends."""
    max_age_seconds: int | None
    """Seconds until the session ends in any case."""
    max_queued: int | None
    """Most executions that may wait for the session."""
    description: str | None
    """What the session is for; at most 200 characters."""


class CodeRunner(Protocol):
    """A client that runs code."""

    async def run(
        self,
        code: str,
        *,
        wait_seconds: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Execution:
        """Run code and return the execution at its end."""


@suggesting
class Sessions:
    """The sessions of the caller. `user` names the user whose session is meant, if its executions have one."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    async def create(self, name: str, *, user: str | None = None, **options: Unpack[SessionOptions]) -> Session:
        """Create a session with limits of its own. Raises Conflict if it exists.

        An execution that names a session which does not exist creates it with the defaults.
        """
        if unknown := options.keys() - SessionOptions.__optional_keys__:
            raise TypeError(describe_unknown(min(unknown), SessionOptions.__optional_keys__))
        pool = options.get("pool")
        body = {
            "name": name,
            "user": user,
            "poolRef": {"name": pool} if pool is not None else None,
            "idleTimeoutSeconds": options.get("idle_timeout_seconds"),
            "maxAgeSeconds": options.get("max_age_seconds"),
            "maxQueued": options.get("max_queued"),
            "description": options.get("description"),
        }
        return await self._channel.fetch(Session, "POST", _SESSIONS, body=drop_unset(body), repeatable=False)

    async def get(self, name: str, *, user: str | None = None) -> Session:
        """Return a session as it is now."""
        return await self._channel.fetch(Session, "GET", _path(name), query={"user": user})

    async def list(self, *, user: str | None = None) -> Sequence[Session]:
        """Return the caller's sessions, of all users or of one, in the order of their names."""
        return (await self._channel.fetch(SessionList, "GET", _SESSIONS, query={"user": user})).items

    async def reset(self, name: str, *, user: str | None = None) -> Session:
        """Let a session start afresh, with no variable and no file. Its limits stay."""
        return await self._channel.fetch(
            Session, "POST", f"{_path(name)}/reset", query={"user": user}, repeatable=False
        )

    async def delete(self, name: str, *, user: str | None = None) -> None:
        """End a session and delete it. An execution that runs in it fails."""
        await self._channel.send("DELETE", _path(name), query={"user": user})


@suggesting
class OpenSession:
    """One session, used as `async with client.session("analysis") as session: await session.run(code)`.

    A session with a name stays at the end of the block, until its limits end it; one without a name is deleted.
    """

    def __init__(
        self,
        client: CodeRunner,
        sessions: Sessions,
        name: str | None,
        *,
        user: str | None,
        options: SessionOptions,
        keep: bool | None = None,
    ) -> None:
        self._client = client
        self._sessions = sessions
        self._user = user
        self._options = options
        self._keeps = name is not None if keep is None else keep
        self.name: Final = name or f"s-{uuid.uuid4().hex[:12]}"

    async def __aenter__(self) -> Self:
        if self._options:
            # an execution would create it with the defaults
            with suppress(Conflict):
                await self._sessions.create(self.name, user=self._user, **self._options)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._keeps:
            await self.delete()

    async def run(
        self,
        code: str,
        *,
        wait_seconds: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Execution:
        """Run code in the session and return the execution at its end, as `run` of the client does."""
        return await self._client.run(
            code, wait_seconds=wait_seconds, idempotency_key=idempotency_key, **self._add_session(options)
        )

    async def get(self) -> Session:
        """Return the session as it is now."""
        return await self._sessions.get(self.name, user=self._user)

    async def reset(self) -> Session:
        """Let the session start afresh, with no variable and no file."""
        return await self._sessions.reset(self.name, user=self._user)

    async def delete(self) -> None:
        """End the session and delete it; nothing happens if it does not exist."""
        with suppress(NotFound):
            await self._sessions.delete(self.name, user=self._user)

    def _add_session(self, options: RunOptions) -> RunOptions:
        given: RunOptions = {**options, "session": self.name}
        if self._user is not None:
            given.setdefault("user", self._user)
        if "pool" in self._options:
            given.setdefault("pool", self._options["pool"])
        return given


def _path(name: str) -> str:
    return f"{_SESSIONS}/{quote_segment(name)}"
