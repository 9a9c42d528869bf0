"""Client of the broker's route for direct calls: calls that the gateway makes for a caller, without an execution."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import time
from typing import Any, Final

from cachetools import TTLCache

from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.broker.grants import DirectGrant

PATH: Final = "/v1/direct/calls"
_TOKEN_SECONDS: Final = 90
"""Lifetime of a grant. A third of it is left when it is used last."""
_REUSE_SECONDS: Final = 60
_MAX_TOKENS: Final = 1024
_CALL_SECONDS: Final = 330.0
"""Longer than any call: `callTimeoutSeconds` of a ToolServer is at most 300."""


class CallUncertain(BrokerError):
    """The broker failed, or the connection to it broke, during a call, which may have been made."""


@dataclass(kw_only=True, eq=False)
class DirectCallClient:
    """Makes direct calls. The calls of one caller reach the same replica, as long as it is ready."""

    broker: BrokerClient
    _tokens: TTLCache[tuple[Any, ...], str] = field(default_factory=lambda: TTLCache(_MAX_TOKENS, _REUSE_SECONDS))
    """Signed grants: signing one takes longer than sending it."""

    async def call(
        self, grant: DirectGrant, body: bytes, *, limit: int, reserve: Callable[[int], None] = lambda size: None
    ) -> bytes:
        """Make a call and return the line of the answer. `reserve` is called with its size before it is read.

        The grant's expiry is set here. Cancelling it cancels the call. Another replica is tried only if no connection
        was made. Raises BrokerError: CallUncertain if the call may have been made.
        """
        sending = self.broker.send(
            "POST",
            PATH,
            near=grant.account,
            token=self._sign(grant),
            body=body,
            headers={"Content-Type": "application/json"},
            timeout_seconds=_CALL_SECONDS,
        )
        try:
            async with sending as response:
                reserve(min(response.size or 0, limit))
                line = await response.read(limit=limit)
        except BrokerError as error:
            if error.is_sent:
                raise CallUncertain(str(error)) from error
            raise
        if response.status == 200:
            return line
        message = f"the broker answered {response.status}: {line.decode(errors='replace').strip()[:300]}"
        if response.status >= 500:  # it failed before the call, during it or after it
            raise CallUncertain(message, status=response.status)
        raise BrokerError(message, status=response.status)

    def _sign(self, grant: DirectGrant) -> str:
        if grant.approved is not None:  # for one call
            return self._sign_now(grant)
        key = (
            *(grant.namespace, grant.pool, grant.caller, grant.user, grant.conversation, grant.calls_per_minute),
            *(tuple(patterns) for patterns in (grant.tools, grant.pool_tools.allow, grant.pool_tools.deny)),
        )
        token = self._tokens.get(key)
        if token is None:
            token = self._tokens[key] = self._sign_now(grant)
        return token

    def _sign_now(self, grant: DirectGrant) -> str:
        expires = int(time()) + _TOKEN_SECONDS
        return self.broker.signer.sign(grant.model_copy(update={"expires": expires}))
