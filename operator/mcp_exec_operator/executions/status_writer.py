"""Writes the status of executions so that no write is lost, made twice or laid over somebody else's."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.executions.record import Entry
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.kube.write_priority import WritePriority

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 5.0
_TOO_LARGE: Final = ("too large", "larger than max")


class ExecutionGone(Exception):
    """The execution was deleted."""


class StatusTooLarge(Exception):
    """The API server does not take a status of this size."""


@dataclass(frozen=True, kw_only=True)
class StatusWriter:
    """Every write names the version that it was made for; where that is not the newest, all is decided anew."""

    api: OperatorApi
    write_priority: WritePriority = field(default_factory=WritePriority)

    async def write(self, entry: Entry, decide: Callable[[Object], Object | None], *, what: str) -> bool:
        """Writes what `decide` makes of the newest object, and False where that is nothing.

        `decide` is asked again after a conflict, and where an answer was lost: then the object is read first, since
        the write may have been made. It may raise, which ends the attempt. Raises ExecutionGone and StatusTooLarge.
        """
        pause = _FIRST_PAUSE
        entry.writing += 1
        try:
            while True:
                status = decide(entry.body)
                if status is None:
                    return False
                try:
                    with self.write_priority.writing():
                        written = await self.api.replace_execution_status(
                            entry.namespace, entry.name, version=entry.version, status=status, what=what
                        )
                    entry.take_in(written)
                except ApiError as error:
                    self._judge(entry, error)
                else:
                    return True
                entry.take_in(await self._read(entry))
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
        finally:
            entry.writing -= 1

    def _judge(self, entry: Entry, error: ApiError) -> None:
        """Raises where another attempt makes no sense."""
        if error.code == 404:
            raise ExecutionGone from error
        if error.code == 413 or any(words in error.message for words in _TOO_LARGE):
            raise StatusTooLarge(error.message) from error
        # 0 is no answer; a server error may come after the write was made
        if error.code not in (0, 409, 429) and error.code < 500:
            raise error
        if error.code != 409:
            log.warning("a status is not known to be written: %s", error, extra=entry.log_fields)

    async def _read(self, entry: Entry) -> Object:
        pause = _FIRST_PAUSE
        while True:
            try:
                found = await self.api.get_execution(entry.namespace, entry.name)
            except ApiError as error:
                log.warning("an execution can't be read: %s", error, extra=entry.log_fields)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
                continue
            if found is None or found["metadata"]["uid"] != entry.uid:
                raise ExecutionGone
            return found
