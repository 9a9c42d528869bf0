"""The thread that owns the audit log's SQLite connection, so that no statement blocks the event loop."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final

from mcp_exec_broker.core.calls.audit import Row
from mcp_exec_broker.features.records.audit.file import (
    ROW_WRITERS,
    RowWriter,
    connect,
    create_tables,
    limit_size,
    truncate_log,
)

log = logging.getLogger(__name__)

MAX_PENDING: Final = 10_000
"""Jobs in the queue. Each call has at most two, and the broker bounds its calls, so only a stuck disk fills it."""
_MAX_BATCH: Final = 128
"""Jobs of one batch."""
_CLOSE_SECONDS: Final = 5.0
_STUCK_SECONDS: Final = 60.0
"""Maximum seconds of one batch; then the disk counts as stuck. Longer than each lock that SQLite waits for."""
_MANY_ROWS: Final = 4096
"""Rows until old records are deleted: at most 12 MiB."""
_MAX_LOG_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of the write-ahead log, which takes up to 40 KiB for a row; then the thread empties it."""


@dataclass(eq=False, slots=True)
class _Job:
    run: Callable[[sqlite3.Connection], Any]
    result: "asyncio.Future[Any]"


@dataclass(eq=False, slots=True)
class _RowJob:
    write: RowWriter
    row: Row
    result: "asyncio.Future[Any]"
    on_written: Callable[[], None]


@dataclass(slots=True)
class _Outcome:
    job: _Job | _RowJob
    value: Any = None
    error: Exception | None = None

    def deliver(self) -> None:
        """Hand the outcome to the job's future. Runs in the event loop."""
        if self.job.result.done():  # the caller was cancelled; the job ran nevertheless
            return
        if self.error is None:
            self.job.result.set_result(self.value)
        else:
            self.job.result.set_exception(self.error)


class AuditWriter:
    """Runs jobs on the SQLite file in the order of their submission.

    All waiting rows are written by one statement per kind: the thread competes with the event loop for the interpreter
    around each statement. A job is durable, short of a crash of the node, once its future is done.
    """

    def __init__(self, path: Path, *, max_bytes: int, max_pending: int = MAX_PENDING) -> None:
        self.has_written_much = asyncio.Event()
        """Set after enough writes that old records should be deleted."""
        self._path = path
        self._log_path = path.with_name(path.name + "-wal")
        self._max_bytes = max_bytes
        self._max_pending = max_pending
        self._written = 0
        """Rows written since `has_written_much` was set last."""
        self._batch_since: float | None = None
        """When the batch began that the thread writes."""
        self._batch: list[_Job | _RowJob] = []
        self._death = ""
        self._jobs: SimpleQueue[_Job | _RowJob | None] = SimpleQueue()
        self._closed = True
        # a daemon: a stuck disk must not keep the process alive
        self._thread = Thread(target=self._run, name="audit-writer", daemon=True)

    async def open(self) -> None:
        """Open the file and start the thread. Raises sqlite3.Error, OSError."""
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._thread.start()
        await self._opened
        self._closed = False

    async def close(self, *, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Wait a bounded time until the queue is empty and the file is closed."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._ended.wait()
        except TimeoutError:
            log.error("the audit log was not closed within %g s; %d jobs wait", timeout_seconds, self._jobs.qsize())

    @property
    def failure(self) -> str:
        """Why the writer writes nothing any more; empty if it writes."""
        since = self._batch_since
        if not self._death and since is not None and monotonic() - since > _STUCK_SECONDS:
            return f"a write to the audit log has taken longer than {_STUCK_SECONDS:g} s"
        return self._death

    def submit(self, run: Callable[[sqlite3.Connection], Any]) -> "asyncio.Future[Any]":
        """Queue a job and return its result's future, which a caller may ignore.

        The future raises what the job raises, and sqlite3.OperationalError if the queue is full or the writer closed.
        """
        result = self._loop.create_future()
        self._put(_Job(run, result))
        return result

    def submit_row(self, write: RowWriter, row: Row, *, on_written: Callable[[], None]) -> "asyncio.Future[Any]":
        """Queue a row for one of ROW_WRITERS, like `submit`. The thread calls `on_written` after the commit."""
        result = self._loop.create_future()
        self._put(_RowJob(write, row, result, on_written))
        return result

    def _put(self, job: _Job | _RowJob) -> None:
        result = job.result
        result.add_done_callback(_mark_retrieved)
        if self._death:
            result.set_exception(sqlite3.OperationalError(self._death))
        elif self._closed:
            result.set_exception(sqlite3.OperationalError("the audit log is closed"))
        elif self._jobs.qsize() >= self._max_pending:
            result.set_exception(sqlite3.OperationalError(f"{self._max_pending} writes to the audit log wait already"))
        else:
            self._jobs.put(job)

    # in the thread

    def _run(self) -> None:
        try:
            self._file = connect(self._path)
            create_tables(self._file)
            limit_size(self._file, self._max_bytes)
        except Exception as error:
            self._call_in_loop(self._opened.set_exception, error)
            return
        self._call_in_loop(self._opened.set_result, None)
        try:
            while (job := self._jobs.get()) is not None:
                self._batch_since = monotonic()
                self._run_batch(job)
                self._bound_log()
                self._batch_since = None
        except BaseException as error:
            self._die(error)
        finally:
            self._file.close()
            self._call_in_loop(self._ended.set)

    def _die(self, error: BaseException) -> None:
        """Fail all jobs that wait, and those that will."""
        self._death = f"the writer of the audit log has ended: {type(error).__name__}"
        log.critical(self._death)
        self._call_in_loop(self._fail_waiting)

    def _fail_waiting(self) -> None:
        waiting: list[_Job | _RowJob | None] = [*self._batch]
        with suppress(Empty):
            while True:
                waiting.append(self._jobs.get_nowait())
        for job in waiting:
            if job is not None and not job.result.done():
                job.result.set_exception(sqlite3.OperationalError(self._death))

    def _bound_log(self) -> None:
        """Empty the write-ahead log if it is large: checkpoints during many writes never reach its end."""
        with suppress(OSError, sqlite3.Error):
            if self._log_path.stat().st_size > _MAX_LOG_BYTES:
                truncate_log(self._file)

    def _run_batch(self, first: _Job | _RowJob) -> None:
        batch, is_last = [first], False
        with suppress(Empty):
            while len(batch) < _MAX_BATCH and not is_last:
                job = self._jobs.get_nowait()
                is_last = job is None
                if job is not None:
                    batch.append(job)
        self._batch = batch
        rows: list[_RowJob] = []
        for job in batch:
            if isinstance(job, _RowJob):
                rows.append(job)
                continue
            self._write_rows(rows)
            rows = []
            self._finish([self._run_job(job, job.run)])
        self._write_rows(rows)
        if is_last:
            self._jobs.put(None)

    def _write_rows(self, jobs: list[_RowJob]) -> None:
        self._written += len(jobs)
        if self._written >= _MANY_ROWS:
            self._written = 0
            self._call_in_loop(self.has_written_much.set)
        for write in ROW_WRITERS:
            same = [job for job in jobs if job.write is write]
            if not same:
                continue
            try:
                write(self._file, [job.row for job in same])
                outcomes = [_Outcome(job) for job in same]
            except sqlite3.OperationalError as error:  # a lock or the disk: each further attempt could wait as long
                outcomes = [_Outcome(job, error=copy(error)) for job in same]
            except Exception:  # one by one, so that each row gets its own error
                outcomes = [self._write_row(job) for job in same]
            self._finish(outcomes)

    def _write_row(self, job: _RowJob) -> _Outcome:
        return self._run_job(job, lambda file: job.write(file, [job.row]))

    def _run_job(self, job: _Job | _RowJob, run: Callable[[sqlite3.Connection], Any]) -> _Outcome:
        try:
            return _Outcome(job, value=run(self._file))
        except Exception as error:
            return _Outcome(job, error=error)

    def _finish(self, outcomes: list[_Outcome]) -> None:
        self._call_in_loop(_deliver, outcomes)
        for outcome in outcomes:
            if outcome.error is None and isinstance(outcome.job, _RowJob):
                outcome.job.on_written()

    def _call_in_loop(self, callback: Callable[..., object], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, *arguments)


def _deliver(outcomes: list[_Outcome]) -> None:
    for outcome in outcomes:
        outcome.deliver()


def _mark_retrieved(future: "asyncio.Future[Any]") -> None:
    """Keep asyncio from logging an error that nobody awaits."""
    if not future.cancelled():
        future.exception()
