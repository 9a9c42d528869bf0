"""A call on its way to its server: places, a session, and what the failures of the way mean."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from mcp.shared.exceptions import MCPError

from mcp_exec_broker.access import quotas as budgets
from mcp_exec_broker.calls.call import Call, ResolvedTool
from mcp_exec_broker.errors import (
    ErrorKind,
    ErrorReason,
    ToolCallError,
    build_denial,
    build_lost_error,
    build_protocol_error,
    build_server_error,
    build_size_error,
    build_timeout,
    build_unavailable_error,
    build_wait_timeout,
)
from mcp_exec_broker.scanning.scanner import Scanner
from mcp_exec_broker.upstream.credentials import UserUnknown
from mcp_exec_broker.upstream.errors import ConnectionLost, ServerUnavailable, SessionExpired
from mcp_exec_broker.upstream.session_pool import SessionPool
from mcp_exec_broker.validation.parameters import list_parameters


@dataclass(kw_only=True, eq=False)
class Dispatcher:
    """Sends calls to their servers."""

    connections: SessionPool
    use: budgets.ServerConcurrency
    scanner: Scanner

    async def send(self, run: Call, target: ResolvedTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the server answered, as the protocol has it. Raises Failure where it did not."""
        limits = target.spec.limits
        seconds = min(limits.call_timeout_seconds, run.asked.timeout_seconds or limits.call_timeout_seconds)
        began, server = perf_counter(), target.server
        run.waits_for = "a place among the calls of the execution"
        try:
            async with asyncio.timeout(seconds), run.account.slot():
                run.waits_for = f"a place among the calls of {server.name} ({limits.concurrency} at once)"
                async with self.use.slot(server.key, limits):
                    return await self._sent(run, target, arguments)
        except TimeoutError:
            raise (
                build_wait_timeout(seconds, waited_for=run.waits_for) if run.waits_for else build_timeout(seconds)
            ) from None
        finally:
            run.elsewhere += perf_counter() - began

    async def _sent(self, run: Call, target: ResolvedTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        server = target.server
        try:
            return await self._tried(run, target, arguments)
        except UserUnknown as error:
            raise build_denial(ErrorReason.NO_USER_CREDENTIALS, str(error)) from None
        except ServerUnavailable as error:
            raise build_server_error(server.name, error) from None
        except SessionExpired:
            raise build_unavailable_error(f"{server.name} ends each session at once") from None
        except ConnectionLost as error:
            raise build_lost_error(f"the connection to {server.name} was lost: {error}") from None
        except MCPError as error:
            said = await self.scanner.result(error.message, target.spec.scan, run.vault)
            raise build_protocol_error(error.code, said.value, parameters=list_parameters(target.tool)) from None
        except OverflowError:
            raise build_size_error(target.spec.limits.result_bytes) from None
        except ValueError as error:
            raise ToolCallError(ErrorKind.PROTOCOL, f"{server.name}: {error}") from None

    async def _tried(self, run: Call, target: ResolvedTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Calls, and where the server did nothing calls again: in another session, or with newer credentials."""
        try:
            return await self._call(run, target, arguments)
        except SessionExpired:
            pass
        except ServerUnavailable as error:
            if error.reason != "Unauthorized":
                raise
            self.connections.reread(target.server)
            if await self.connections.session(target.server, run.grant.user) is run.session:
                raise
        return await self._call(run, target, arguments)

    async def _call(self, run: Call, target: ResolvedTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        run.waits_for = f"a connection to {target.server.name}"
        run.session = await self.connections.session(target.server, run.grant.user)
        run.is_modern = run.session.is_modern  # which a session that has ended can't tell
        run.waits_for = ""
        return await run.session.call(target.tool.name, arguments)
