"""Executions at a gateway."""

import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_exec_client.cli.backends.backend import Decision, RolloutAction, Selection
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import Object
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import GatewayError, McpExecError, NotFound, Unauthenticated, Unavailable
from mcp_exec_client.state.channel import quote_segment

_EXECUTIONS: Final = "/v1/executions"
_SESSIONS: Final = "/v1/sessions"
_ROLLOUTS: Final = "/v1/rollouts"
_PAGE: Final = 100
_MAX_PAGES: Final = 200


@dataclass(kw_only=True)
class GatewayBackend:
    """Executions of one namespace at a gateway. Responses are passed on as they come, with fields of newer gateways."""

    client: AsyncClient
    namespace: str | None
    streams_output: bool = field(default=True, init=False)

    async def submit(self, new: Object) -> Object:
        """Create an execution and return it without waiting for its end. It is created at most once."""
        # the key makes a request whose response is lost repeatable
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        query = {"wait": "0", "onDisconnect": "continue"}
        return dict(await self._request("POST", _EXECUTIONS, body=new, headers=headers, query=query))

    async def follow(self, name: str) -> AsyncGenerator[Object, None]:
        """Yield the events of an execution from its start; the last one is `end`. Lost connections are resumed."""
        with translating():
            async with aclosing(self.client.stream(name)) as events:
                async for event in events:
                    yield event.model_dump(mode="json", by_alias=True)

    async def get(self, name: str, *, with_code: bool = False) -> Object:
        """Return an execution, with `code` if wanted."""
        return dict(await self._request("GET", _path(name), query={"include": "code" if with_code else None}))

    async def list_executions(self, selection: Selection) -> list[Object]:
        """Return executions without their output, newest first."""
        found: list[Object] = []
        token: str | None = None
        for _ in range(_MAX_PAGES):
            query = {
                "phase": selection.phase,
                "caller": selection.caller,
                "labelSelector": selection.labels or None,
                "limit": str(min(selection.limit, _PAGE)),
                "continue": token,
            }
            page = await self._request("GET", _EXECUTIONS, query=query)
            found += page.get("items") or []
            token = page.get("continue")
            if not token or len(found) >= selection.limit:
                break
        return found[: selection.limit]

    async def cancel(self, name: str) -> Object:
        """Request the cancellation of an execution and return it."""
        return dict(await self._request("DELETE", _path(name)))

    async def delete(self, name: str) -> bool:
        """Delete an execution that has ended, and return whether it is gone already."""
        with translating():
            return await self.client.delete(name)

    async def withdraw(self, name: str) -> str:
        """Request the cancellation of an execution."""
        await self.cancel(name)
        return f"{name} is being cancelled"

    async def find_unserved(self) -> str | None:
        """Return None: a gateway refuses requests for namespaces that are not served."""
        return None

    async def list_approvals(self, name: str | None) -> list[Object]:
        """Return the approvals of an execution, or the pending ones of the namespace, each with its `execution`."""
        path = "/v1/approvals" if name is None else f"{_path(name)}/approvals"
        answer = await self._request("GET", path)
        return [{"execution": name, **item} if name else item for item in answer.get("items") or []]

    async def decide(self, name: str, approval: str, decision: Decision) -> Object:
        """Decide on a tool call and return the approval."""
        method = self.client.approve if decision.choice == "Approve" else self.client.deny
        with translating():
            decided = await method(name, approval, comment=decision.comment, arguments_digest=decision.arguments_digest)
        return dict(decided.model_dump(mode="json", by_alias=True, exclude_unset=True))

    async def search_tools(self, query: str, *, limit: int, schemas: bool = False) -> list[Object]:
        """Return the tools that match, best first."""
        level = "full" if schemas else "with_description"
        params = {"query": query, "limit": str(limit), "detail_level": level}
        return list(await self._request("GET", "/api/v1/mcp/tools/search", query=params))

    async def list_sessions(self, *, user: str | None) -> list[Object]:
        """Return the caller's sessions, of all users or of one, ordered by name."""
        return list((await self._request("GET", _SESSIONS, query={"user": user})).get("items") or [])

    async def get_session(self, name: str, *, user: str | None) -> Object:
        """Return a session."""
        return dict(await self._request("GET", _path(name, _SESSIONS), query={"user": user}))

    async def reset_session(self, name: str, *, user: str | None) -> Object:
        """Request that a session starts afresh, and return it."""
        return dict(await self._request("POST", f"{_path(name, _SESSIONS)}/reset", query={"user": user}))

    async def delete_session(self, name: str, *, user: str | None) -> None:
        """End a session and delete it."""
        with translating():
            await self.client.sessions.delete(name, user=user)

    async def list_pools(self) -> list[Object]:
        """Return the pools that the caller may use, ordered by name."""
        return list((await self._request("GET", "/v1/stats")).get("pools") or [])

    async def list_rollouts(self) -> list[Object]:
        """Return the namespace's rollouts, ordered by name."""
        return list((await self._request("GET", _ROLLOUTS)).get("items") or [])

    async def get_rollout(self, name: str) -> Object:
        """Return a rollout."""
        return dict(await self._request("GET", _path(name, _ROLLOUTS)))

    async def steer_rollout(self, name: str, action: RolloutAction, *, to: str | None = None) -> Object:
        """Promote, pause, resume or abort a rollout, and return it."""
        body = {"to": to} if to is not None else {}
        return dict(await self._request("POST", f"{_path(name, _ROLLOUTS)}/{action}", body=body))

    async def _request(self, method: str, path: str, **request: Any) -> Any:
        with translating():
            return (await self.client.channel.send(method, path, **request)).to_json()


def _path(name: str, collection: str = _EXECUTIONS) -> str:
    try:
        return f"{collection}/{quote_segment(name)}"
    except NotFound:
        raise CommandError(f"{name!r} is not the name of anything at {collection}", ExitCode.USAGE) from None


@contextmanager
def translating() -> Iterator[None]:
    """Raise the client's errors as CommandError."""
    try:
        yield
    except Unauthenticated as error:
        message = "the gateway refused the key (401): use another one by --api-key, $MCP_EXEC_API_KEY or a profile"
        raise CommandError(str(error) if error.is_of_proxy else message, ExitCode.REFUSED) from error
    except GatewayError as error:
        is_refusal = not isinstance(error, Unavailable)
        fields = "; ".join(_describe_fields(error))
        text = f"{'the gateway refused the request' if is_refusal else 'the gateway has a problem'}: {error}"
        raise CommandError(
            f"{text} ({fields})" if fields else text, ExitCode.REFUSED if is_refusal else ExitCode.UNAVAILABLE
        ) from error
    except McpExecError as error:
        raise CommandError(str(error), ExitCode.UNAVAILABLE) from error


def _describe_fields(error: GatewayError) -> Iterator[str]:
    """Yield the invalid fields that the error's text does not name, with messages that it does not repeat."""
    for each in error.errors[:5]:
        if each.message not in error.detail:
            yield f"{each.field}: {each.message}"
        elif each.field not in error.detail:
            yield each.field
