"""Records of finished executions: their rows, and the sender to the broker, which stores them."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal, Protocol

from mcp_exec_api.code_execution import read_created_at
from mcp_exec_api.constants import DEFAULT_LANGUAGE, LABEL_CONVERSATION, LABEL_USE_CASE, Language
from mcp_exec_common.broker.client import BrokerError
from mcp_exec_common.broker.records import MAX_RECORDS_BYTES, AddedRecords
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.signals import Signal
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.cluster.kube.observations import CallerProofs
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

CodePolicy = Literal["Never", "Digest", "Full"]
"""What a record keeps of the code: nothing, its digest, or all of it with the digest."""
_UNSTORABLE: Final = {0: "\ufffd"} | dict.fromkeys(range(55296, 57344), "�")
_BATCH: Final = 100
"""Executions that are in memory at once."""
_READS: Final = 8
_GATHER_SECONDS: Final = 0.2
"""How long ends of executions are gathered into one request."""
_RETRY_SECONDS: Final = 5.0
_MAX_BYTES: Final = MAX_RECORDS_BYTES - 64 * 1024
Row = Mapping[str, object]


def build_row(execution: Object, *, caller: str, language: Language, code: CodePolicy) -> dict[str, object]:
    """Return the row of a finished execution.

    `caller` is who created it, as its proof says, and `language` that of its pool. The default language is left out: a
    broker of the release before, which an upgrade may leave for a while, refuses columns that it does not have.
    """
    metadata, spec, status = execution["metadata"], execution.get("spec") or {}, execution.get("status") or {}
    labels, durations = metadata.get("labels") or {}, status.get("durations") or {}
    usage, calls = status.get("usage") or {}, status.get("toolCalls") or {}
    language = spec.get("language") or language
    row: dict[str, object] = {
        "uid": metadata["uid"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "caller": caller or None,
        "user": spec.get("user"),
        "conversation": labels.get(LABEL_CONVERSATION),
        "use_case": labels.get(LABEL_USE_CASE),
        "mode": "code",
        "pool": read_pool(spec),
        **({} if language == DEFAULT_LANGUAGE else {"language": language}),
        "session": spec.get("session"),
        "phase": status.get("phase"),
        "reason": status.get("reason") or None,
        "created_at": _read_time(read_created_at(execution)),
        "started_at": _read_time(status.get("startedAt")),
        "finished_at": _read_time(status.get("finishedAt")),
        "duration_ms": _round(durations.get("total")),
        "queue_ms": _round(durations.get("queued")),
        "warm": status["start"] != "Cold" if status.get("start") else None,
        "cpu_seconds": usage.get("cpuSeconds"),
        "peak_memory_bytes": usage.get("peakMemoryBytes"),
        "sandbox_seconds": usage.get("sandboxSeconds"),
        "tool_calls": calls.get("total"),
        "failed_calls": calls.get("failed"),
    }
    return {name: _bound(value) for name, value in row.items()} | _describe_code(spec, status, code)


def read_pool(spec: Mapping[str, Any]) -> str:
    """Return the name of an execution's pool."""
    return (spec.get("poolRef") or {}).get("name") or "default"


def _describe_code(spec: Mapping[str, Any], status: Mapping[str, Any], policy: CodePolicy) -> dict[str, object]:
    """Return the columns of the code and of its estimated tokens."""
    code = str(spec.get("code") or "")
    encoded = code.encode("utf-8", "replace")
    tokens = (status.get("usage") or {}).get("tokens") or {}
    return {
        "code_bytes": len(encoded),
        "code_digest": None if policy == "Never" else "sha256:" + hashlib.sha256(encoded).hexdigest(),
        "code": code.translate(_UNSTORABLE) if policy == "Full" else None,
        "tokens_code": tokens.get("code"),
        "tokens_returned": tokens.get("returned"),
        "tokens_kept": tokens.get("kept"),
        "tokens_method": tokens.get("method"),
    }


def _read_time(text: object) -> int | None:
    """Return microseconds since 1970."""
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1_000_000) if text else None
    except (ValueError, OverflowError):
        return None


def _round(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds)


def _bound(value: object) -> object:
    """Return a value that a database can store: only labels and fields with other limits are longer."""
    return value.translate(_UNSTORABLE)[:253] if isinstance(value, str) else value


class RecordsReceiver(Protocol):
    """The broker's records. Both methods raise BrokerError."""

    async def add(self, rows: Mapping[str, Sequence[Row]]) -> AddedRecords:
        """Store rows by table."""

    async def find_executions(self, uids: Sequence[str]) -> set[str]:
        """Return which executions are stored."""


@dataclass(kw_only=True, eq=False)
class ExecutionRecorder:
    """Records each finished execution of a namespace at least once; the store keeps one row for each uid.

    In memory are only names and uids, at most one for each execution that exists. An outage of the broker delays the
    deletion of executions, and loses none.
    """

    receiver: RecordsReceiver
    api: OperatorApi
    callers: CallerProofs
    find_language: Callable[[str], Language]
    """Returns the language of the namespace's pool of this name."""
    code: CodePolicy
    metrics: Metrics
    recorded: Signal[[str]] = field(default_factory=Signal)
    """Sent with the uid of each execution that has a record."""
    _waiting: dict[str, ObjectKey] = field(default_factory=dict)
    _recorded: set[str] = field(default_factory=set)
    _measured: int = 0
    """Executions without a record that the gauge counts."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def request(self, uid: str, key: ObjectKey) -> None:
        """Record a finished execution soon. Never waits."""
        if uid not in self._recorded and uid not in self._waiting:
            self._waiting[uid] = key
            self.changed()

    def changed(self) -> None:
        """Record soon."""
        self._wakeup.set()

    def is_recorded(self, uid: str) -> bool:
        """Return whether the execution has a record."""
        return uid in self._recorded

    def discard(self, uid: str) -> None:
        """Discard what is known of a deleted execution."""
        if self._waiting.pop(uid, None) is not None:
            log.warning("an execution was deleted before its record was stored", extra={"uid": uid})
            self.metrics.records.labels("missed").inc()
        self._recorded.discard(uid)

    async def run(self) -> None:
        """Record finished executions until cancelled."""
        while True:
            self._wakeup.clear()
            self._measure(len(self._waiting))
            if not self._waiting:
                await self._wakeup.wait()
                await asyncio.sleep(_GATHER_SECONDS)
            try:
                await self._record_batch(dict(islice(self._waiting.items(), _BATCH)))
            except (ApiError, BrokerError) as error:
                await self._delay(error)
            except Exception as error:
                log.exception("recording failed")  # an end of this task would keep all executions for good
                await self._delay(error)

    def close(self) -> None:
        """Leave what has no record yet to the next operator of the namespace."""
        self._measure(0)

    def _measure(self, pending: int) -> None:
        """Set the share of these executions in the gauge, which is one for all namespaces."""
        self.metrics.records_pending.inc(pending - self._measured)
        self._measured = pending

    async def _delay(self, error: Exception) -> None:
        self.metrics.records.labels("failed").inc()
        message = "%d finished executions have no record yet, and are kept until they do: %s"
        log.warning(message, len(self._waiting), error)
        await asyncio.sleep(_RETRY_SECONDS)

    async def _record_batch(self, batch: dict[str, ObjectKey]) -> None:
        """Record some executions. Raises ApiError, BrokerError."""
        found = await self.receiver.find_executions(list(batch))
        missing = [(uid, key) for uid, key in batch.items() if uid not in found]
        rows: list[Row] = []
        for start in range(0, len(missing), _READS):
            read = await asyncio.gather(*(self._build(uid, key) for uid, key in missing[start : start + _READS]))
            rows += [row for row in read if row is not None]
        for chunk in _split(rows):
            added = await self.receiver.add({"executions": chunk})
            self.metrics.records.labels("stored").inc(added.stored)
            for reason in added.refused:
                self.metrics.records.labels("refused").inc()
                log.error("the record of an execution was refused: %s", reason)
        for uid in batch:
            if self._waiting.pop(uid, None) is not None:
                self._recorded.add(uid)
            self.recorded.emit(uid)

    async def _build(self, uid: str, key: ObjectKey) -> Row | None:
        execution = await self.api.get("CodeExecution", *key)
        if execution is None or execution["metadata"]["uid"] != uid:
            self.discard(uid)
            return None
        caller = self.callers.read_listed_caller(execution["metadata"])
        try:
            language = self.find_language(read_pool(execution.get("spec") or {}))
            return build_row(execution, caller=caller, language=language, code=self.code)
        except Exception:  # whoever may write the status must not stop the records of others
            self.metrics.records.labels("refused").inc()
            log.exception("an execution has no record: it cannot be built", extra={"uid": uid})
            return None


def _split(rows: list[Row]) -> list[list[Row]]:
    """Return the rows in requests of bounded size."""
    chunks: list[list[Row]] = []
    space = 0
    for row in rows:
        size = len(json.dumps(row))
        if size > space:
            chunks.append([])
            space = _MAX_BYTES
        chunks[-1].append(row)
        space -= size
    return chunks
