"""Sends a call to its server: slots, session, retry, and the translation of errors."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from mcp import MCPError

from mcp_exec_api.reasons.server import ServerReason, find_server_reason
from mcp_exec_broker.core.access.limiters import ServerConcurrency
from mcp_exec_broker.core.calls.call import Call, ResolvedTool
from mcp_exec_broker.core.errors import (
    ErrorKind,
    ErrorReason,
    ToolCallError,
    build_denial,
    build_lost_error,
    build_protocol_error,
    build_size_error,
    build_timeout,
    build_unavailable_error,
    build_wait_timeout,
)
from mcp_exec_broker.core.memory import AnswerReceiver
from mcp_exec_broker.core.upstream.credentials import UserUnknown
from mcp_exec_broker.core.upstream.errors import ConnectionLost, ServerUnavailable, SessionExpired
from mcp_exec_broker.core.upstream.result_repair import UnreadableResult
from mcp_exec_broker.core.upstream.session_pool import SessionPool
from mcp_exec_broker.core.validation.values import build_unreadable_error, list_parameters


def build_server_error(server: str, error: ServerUnavailable) -> ToolCallError:
    """Return the error for a server that is unavailable now.

    Its text is the reason's meaning. Addresses, names of Secrets and output of the server concern the platform team,
    which finds them in the ToolServer's status.
    """
    known = find_server_reason(error.reason)
    meaning = known.meaning.partition(";")[0] if known is not None else "it is unavailable"
    message = f"{server} can't be used now: {meaning} ({error.reason}); details: kubectl describe toolserver {server}"
    if error.was_sent:
        message += "; the server may have made the call all the same"
    return build_unavailable_error(message, cause=error.reason)


@dataclass(kw_only=True, eq=False)
class Dispatcher:
    """Sends calls to their servers."""

    sessions: SessionPool
    concurrency: ServerConcurrency

    async def dispatch(self, call: Call, resolved: ResolvedTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the server's result as on the wire. Raises ToolCallError if there is none."""
        limits = resolved.spec.limits
        seconds = min(limits.call_timeout_seconds, call.request.timeout_seconds or limits.call_timeout_seconds)
        started, server = perf_counter(), resolved.server
        call.waits_for = "a place among the calls of the execution"
        try:
            async with asyncio.timeout(seconds), call.quota.acquire_slot():
                call.waits_for = f"a place among the calls of {server.name} ({limits.concurrency} at once)"
                async with self.concurrency.acquire_slot(server.key, limits):
                    return await self._translate_errors(call, resolved, arguments)
        except TimeoutError:
            if call.waits_for:
                raise build_wait_timeout(seconds, waited_for=call.waits_for) from None
            raise build_timeout(seconds) from None
        finally:
            call.external_seconds += perf_counter() - started

    async def _translate_errors(
        self, call: Call, resolved: ResolvedTool, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        server = resolved.server
        try:
            return await self._retry(call, resolved, arguments)
        except UserUnknown as error:
            raise build_denial(ErrorReason.NO_USER_CREDENTIALS, str(error)) from None
        except ServerUnavailable as error:
            raise build_server_error(server.name, error) from None
        except SessionExpired:
            raise build_unavailable_error(f"{server.name} ends each session at once") from None
        except ConnectionLost as error:
            raise build_lost_error(f"the connection to {server.name} was lost: {error}") from None
        except MCPError as error:
            message = await call.scanner.scan_result(error.message, resolved.spec.scan)
            parameters = list_parameters(resolved.tool)
            raise build_protocol_error(error.code, message, parameters=parameters) from None
        except OverflowError:
            raise build_size_error(resolved.spec.limits.result_bytes) from None
        except UnreadableResult as error:
            raise build_unreadable_error(resolved.name, str(error)) from None
        except ValueError as error:
            raise ToolCallError(ErrorKind.PROTOCOL, f"{server.name}: {error}") from None

    async def _retry(self, call: Call, resolved: ResolvedTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call the tool, and once more in a new session if the server did nothing: session expired, or unauthorized."""
        try:
            return await self._call_tool(call, resolved, arguments)
        except SessionExpired:
            pass
        except ServerUnavailable as error:
            if error.reason not in (ServerReason.UNAUTHORIZED, ServerReason.TOKEN_REFUSED):
                raise
            self.sessions.expire_credentials(resolved.server)
            if await self.sessions.get_session(resolved.server, call.grant.user) is call.session:
                raise
        return await self._call_tool(call, resolved, arguments)

    async def _call_tool(self, call: Call, resolved: ResolvedTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if call.recorded is not None:
            call.waits_for = "its audit record"
            started = perf_counter()
            await call.wait_until_recorded()
            call.external_seconds -= perf_counter() - started  # the broker's own time
        # last, with no wait after it: the pool may close a session without active requests
        call.waits_for = f"a connection to {resolved.server.name}"
        call.session = await self.sessions.get_session(resolved.server, call.grant.user)
        call.is_modern = call.session.is_modern  # unavailable once the session has ended
        call.waits_for = ""
        receiver = AnswerReceiver(lease=call.request.lease)
        result = await call.session.call_tool(resolved.tool.name, arguments, receiver=receiver)
        call.result_size = receiver.size
        call.notes += receiver.notes
        return result
