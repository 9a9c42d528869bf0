"""Client of the broker's records, for operator and gateway. All replicas have the same store."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, ValidationError

from mcp_exec_api.meta import Model
from mcp_exec_api.wire.rollouts import MeasuredRollout
from mcp_exec_api.wire.usage import UsageGrouping
from mcp_exec_common.broker.client import NOT_IMPLEMENTED, BrokerClient, BrokerError, Repeat
from mcp_exec_common.usage import MeasuredUsage

MAX_RECORDS: Final = 1000
"""Maximum rows of a request, of a page, and uids of a search."""
MAX_RECORDS_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of a request."""
RECORDS_OFF_STATUS: Final = NOT_IMPLEMENTED
"""HTTP status of a broker without records."""
_SECONDS: Final = 30.0
_FLUSH_SECONDS: Final = 2.0

RecordRow = Mapping[str, object]
_Answer = TypeVar("_Answer", bound=Model)


class RecordsError(BrokerError):
    """A request on records that failed: nothing is stored that was not stored before, or all of it."""


class RecordsOff(RecordsError):
    """An installation that keeps no records."""


class AddedRecords(Model):
    """Result of adding rows."""

    stored: Annotated[int, Field(ge=0)] = 0
    """Rows that are in the store, those included that were there before."""
    created: dict[str, int] = {}
    """Of those, rows by table that were not there before; without a table if the database does not say."""
    refused: Annotated[list[str], Field(max_length=MAX_RECORDS)] = []
    """Why rows were refused: they are wrong, and are refused however often they are sent."""


class FoundExecutions(Model):
    """Executions whose records are stored."""

    uids: Annotated[list[str], Field(max_length=MAX_RECORDS)] = []
    """Their uids."""


class RecordRows(Model):
    """A page of a table, oldest row first."""

    items: Annotated[list[dict[str, Any]], Field(max_length=MAX_RECORDS)] = []
    """Rows by column."""
    cursor: str = ""
    """Cursor of the next page. It can be used again later if this page is empty."""
    is_last: bool = False
    """Whether nothing more was stored when the page was read."""


class LastUses(Model):
    """Last uses of the API keys of a namespace."""

    hours: Annotated[dict[str, int], Field(max_length=MAX_RECORDS)] = {}
    """Beginning of the last hour of use, in microseconds since 1970, by the name of the key."""


@dataclass(frozen=True)
class RecordsClient:
    """Writes and reads records. All methods raise RecordsError; RecordsOff if there are none."""

    broker: BrokerClient

    async def add(self, rows: Mapping[str, Sequence[RecordRow]]) -> AddedRecords:
        """Store rows of one or more tables, at most MAX_RECORDS in all. Rows that are stored remain as they are."""
        namespaces = {str(row.get("namespace")) for batch in rows.values() for row in batch}
        # by it the broker keeps the rows of a busy namespace from delaying those of others
        params = {"namespace": namespaces.pop()} if len(namespaces) == 1 else None
        return await self.ask(AddedRecords, "POST", "/v1/records", params=params, content=rows)

    async def find_executions(self, uids: Collection[str]) -> set[str]:
        """Return which of at most MAX_RECORDS executions have a record."""
        content = {"uids": list(uids)}
        return set((await self.ask(FoundExecutions, "POST", "/v1/records/find-executions", content=content)).uids)

    async def read_rows(
        self, table: str, *, namespace: str, caller: str | None = None, cursor: str = "", limit: int = MAX_RECORDS
    ) -> RecordRows:
        """Return a page of the rows of a namespace, or of one of its callers."""
        params = {"namespace": namespace, "cursor": cursor, "limit": str(limit)} | _name_caller(caller)
        return await self.ask(RecordRows, "GET", f"/v1/records/{table}", params=params)

    async def find_last_uses(self, *, namespace: str, caller: str | None = None) -> dict[str, int]:
        """Return the hour of the last use of each API key of a namespace, or of one of them, by its name."""
        params = {"namespace": namespace} | _name_caller(caller)
        return (await self.ask(LastUses, "GET", "/v1/records/last-uses", params=params)).hours

    async def measure_rollout(
        self, *, namespace: str, uid: str, window_seconds: float | None = None
    ) -> MeasuredRollout:
        """Return what the arms of a rollout measured in the last seconds; without a window, since the beginning."""
        params = {"namespace": namespace, "uid": uid}
        if window_seconds is not None:
            params["window"] = f"{window_seconds:.3f}"
        return await self.ask(MeasuredRollout, "GET", "/v1/records/rollout-measures", params=params)

    async def measure_usage(
        self, *, namespace: str, caller: str | None = None, by: UsageGrouping, since: int, until: int
    ) -> MeasuredUsage:
        """Return the sums of a namespace or of one of its callers in a time in microseconds since 1970.

        `until` is excluded.
        """
        params = {"namespace": namespace, "by": by, "since": str(since), "until": str(until)} | _name_caller(caller)
        return await self.ask(MeasuredUsage, "GET", "/v1/records/usage", params=params)

    async def ask(
        self,
        answer: type[_Answer],
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: object = None,
    ) -> _Answer:
        """Return the answer of the first replica that gives one."""
        body = None if content is None else json.dumps(content).encode()
        try:
            found = await self.broker.ask(
                method, path, repeat=Repeat.IF_FAILED, params=params, body=body, timeout_seconds=_SECONDS
            )
            return answer.model_validate(found, extra="ignore")
        except BrokerError as error:
            kind = RecordsOff if error.status == RECORDS_OFF_STATUS else RecordsError
            raise kind(error.text or str(error), status=error.status) from error
        except ValidationError as error:
            raise RecordsError(f"the broker sent invalid {answer.__name__}: {error}") from error


def _name_caller(caller: str | None) -> dict[str, str]:
    return {} if caller is None else {"caller": caller}


@dataclass(kw_only=True, eq=False)
class RecordsQueue(ABC):
    """What waits for its records. It is sent soon after something was added, and again after a failure."""

    gather_seconds: float
    """Seconds in which more is gathered before it is sent."""
    retry_seconds: float
    """Further seconds after a failure."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def changed(self) -> None:
        """Send soon."""
        self._wakeup.set()

    async def run(self) -> None:
        """Send until cancelled, then what waits, for at most two seconds."""
        try:
            while True:
                await self._wakeup.wait()
                await asyncio.sleep(self.gather_seconds)
                if not await self._send():
                    await asyncio.sleep(self.retry_seconds)
        finally:
            try:
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._send()
            except TimeoutError:
                self.lose_all()

    async def _send(self) -> bool:
        self._wakeup.clear()
        if not (is_done := await self.send_all()):
            self.changed()
        return is_done

    @abstractmethod
    async def send_all(self) -> bool:
        """Send what waits, in batches. Return whether nothing is left."""

    @abstractmethod
    def lose_all(self) -> None:
        """Take note that the process ends with what waits."""
