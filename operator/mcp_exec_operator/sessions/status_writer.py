"""Writes of the status of sessions, each for the version that it was decided for."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.backoff import delay_after
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.sessions.record import SessionRecord

log = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.05
_LAST_DELAY: Final = 5.0
_MAX_ATTEMPTS: Final = 12
"""About 30 s."""


class SessionGone(Exception):
    """The session was deleted."""


@dataclass(frozen=True, kw_only=True)
class SessionStatusWriter:
    """Writes status so that no write is made over another writer's."""

    api: OperatorApi

    async def write(self, record: SessionRecord, build: Callable[[], Object], *, what: str) -> None:
        """Write the status that `build` returns. After a conflict or a lost answer, the object is read and `build`
        called again.

        Raises SessionGone, and ApiError if the API server refuses the status or does not answer for half a minute.
        """
        for failures in range(1, _MAX_ATTEMPTS + 1):
            if record.gone:
                raise SessionGone
            try:
                written = await self.api.replace_session_status(
                    *record.key, version=record.version, status=build(), what=what
                )
            except ApiError as error:
                if error.code == 404:
                    raise SessionGone from error
                if (error.code not in (0, 409, 429) and error.code < 500) or failures == _MAX_ATTEMPTS:
                    raise
                if error.code != 409:
                    log.warning("the status of a session may not be written: %s", error, extra=record.log_fields)
            else:
                record.observe(written)
                return
            await asyncio.sleep(delay_after(failures, first=_FIRST_DELAY, last=_LAST_DELAY))
            await self._refresh(record)

    async def _refresh(self, record: SessionRecord) -> None:
        try:
            body = await self.api.get_session(*record.key)
        except ApiError as error:
            log.warning("a session can't be read: %s", error, extra=record.log_fields)
            return
        if body is None or body["metadata"]["uid"] != record.uid:
            raise SessionGone
        record.observe(body)
