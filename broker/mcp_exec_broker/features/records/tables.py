"""Tables of the records, for SQLite and PostgreSQL, and the table of the audit log, which is a SQLite file.

A tool call has one row in the audit log, with the fields of `ToolCallRecord`, and, once it has ended, one in the
records: that has no arguments, and other columns for sums.
"""

import re
from typing import Any, Final

from sqlalchemy import REAL, BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text, text
from sqlalchemy.sql.schema import ScalarElementColumnDefault
from sqlalchemy.types import TypeEngine

from mcp_exec_api.constants import DEFAULT_LANGUAGE

SCHEMA_VERSION: Final = 1
"""Version of the schema below. Tables get the columns that they lack: these have a default or may be empty, so that the
release before can still write rows. Any other change adds a step to `store.RecordStore.migrate`."""
MAX_CODE: Final = 1024 * 1024
"""Maximum characters of an execution's recorded code."""

METADATA: Final = MetaData()


def _key(name: str, length: int) -> Column[str]:
    return Column(name, String(length), primary_key=True)


def _text(name: str, length: int, *, required: bool = False) -> Column[str]:
    return Column(name, String(length), nullable=not required)


def _default_text(name: str, length: int, value: str) -> Column[str]:
    """Return a column of rows whose sender leaves out this value, and that older rows have."""
    return Column(name, String(length), nullable=False, default=value, server_default=value)


def _number(name: str, *, required: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=not required)


def _real(name: str) -> Column[float]:
    return Column(name, Float(53))


def _flag(name: str, *, required: bool = False) -> Column[bool]:
    return Column(name, Boolean(create_constraint=False), nullable=not required)


def _attribution(*, caller_is_key: bool = False) -> list[Column[str]]:
    """Return the columns that name the caller, the user and the arm."""
    return [
        *([] if caller_is_key else [_text("caller", 253)]),
        _text("user", 253),
        _text("conversation", 64),
        _text("use_case", 16),
        _text("mode", 16),
        _text("rollout", 63),
        _text("arm", 63),
    ]


def _stored_at() -> Column[int]:
    """Return the column that exports continue from and rows expire by: a sender cannot choose it."""
    return _number("stored_at", required=True)


EXECUTIONS: Final = Table(
    "executions",
    METADATA,
    _key("uid", 64),
    _text("namespace", 63, required=True),
    _text("name", 253, required=True),
    *_attribution(),
    _text("pool", 63),
    _default_text("language", 32, DEFAULT_LANGUAGE),
    _text("session", 63),
    _text("phase", 32, required=True),
    _text("reason", 128),
    _number("created_at", required=True),
    _number("started_at"),
    _number("finished_at"),
    _number("duration_ms"),
    _number("queue_ms"),
    _flag("warm"),
    _real("cpu_seconds"),
    _number("peak_memory_bytes"),
    _real("sandbox_seconds"),
    _number("code_bytes"),
    _text("code_digest", 80),
    _text("code", MAX_CODE),
    _number("tokens_code"),
    _number("tokens_returned"),
    _number("tokens_kept"),
    _text("tokens_method", 64),
    _number("tool_calls"),
    _number("failed_calls"),
    _stored_at(),
    Index("executions_stored", "stored_at", "uid"),
    Index("executions_created", "namespace", "created_at"),
)
CALLS: Final = Table(
    "calls",
    METADATA,
    _key("id", 64),
    _text("execution_uid", 64),
    _text("namespace", 63, required=True),
    *_attribution(),
    _text("server", 253, required=True),
    _text("tool", 253, required=True),
    _text("outcome", 32, required=True),
    _text("reason", 128),
    _number("calls", required=True),
    _number("started_at", required=True),
    _number("duration_ms"),
    _number("argument_bytes"),
    _number("result_bytes"),
    _number("result_tokens"),
    _stored_at(),
    Index("calls_stored", "stored_at", "id"),
    Index("calls_started", "namespace", "started_at"),
)
MODEL_USAGE: Final = Table(
    "model_usage",
    METADATA,
    _key("namespace", 63),
    _key("caller", 253),
    _key("id", 128),
    *_attribution(caller_is_key=True),
    _text("unit", 253),
    _text("model", 128, required=True),
    _number("turns", required=True),
    _number("input_tokens", required=True),
    _number("output_tokens", required=True),
    _number("cache_read_tokens", required=True),
    _number("cache_write_tokens", required=True),
    _number("definition_tokens"),
    _text("counted", 16, required=True),
    _flag("success"),
    _number("latency_ms"),
    _number("at", required=True),
    _stored_at(),
    Index("model_usage_stored", "stored_at", "namespace", "caller", "id"),
    Index("model_usage_at", "namespace", "at"),
)
FEEDBACK: Final = Table(
    "feedback",
    METADATA,
    _key("namespace", 63),
    _key("caller", 253),
    _key("id", 128),
    *_attribution(caller_is_key=True),
    _number("rating", required=True),
    _text("comment", 1000),
    _number("at", required=True),
    _stored_at(),
    Index("feedback_stored", "stored_at", "namespace", "caller", "id"),
    Index("feedback_at", "namespace", "at"),
)
EXPOSURES: Final = Table(
    "exposures",
    METADATA,
    _key("namespace", 63),
    _key("rollout_uid", 64),
    _key("unit", 253),
    _text("rollout", 63, required=True),
    _text("arm", 63, required=True),
    _text("stage", 63),
    _number("at", required=True),
    _stored_at(),
    Index("exposures_stored", "stored_at", "namespace", "rollout_uid", "unit"),
)
OUTCOMES: Final = Table(
    "outcomes",
    METADATA,
    _key("namespace", 63),
    _key("id", 128),
    _text("rollout", 63, required=True),
    _text("rollout_uid", 64, required=True),
    _text("unit", 253, required=True),
    _text("arm", 63, required=True),
    _flag("success"),
    _number("latency_ms"),
    _number("tokens"),
    _real("cost"),
    _number("rating"),
    _number("at", required=True),
    _stored_at(),
    Index("outcomes_stored", "stored_at", "namespace", "id"),
    Index("outcomes_at", "namespace", "rollout_uid", "at"),
)
KEY_USES: Final = Table(
    "key_uses",
    METADATA,
    _key("namespace", 63),
    _key("caller", 253),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    _stored_at(),
    Index("key_uses_stored", "stored_at", "namespace", "caller", "at"),
)
"""An hour with a request by an API key. `caller` is the key's name, and `at` the beginning of the hour."""
AUDIT: Final = Table(
    "calls",
    MetaData(),  # of its own: each replica has its own file
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("at", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("execution", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("caller", Text),
    Column("user", Text),
    Column("server", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("approval", Text),
    Column("approved_by", Text),
    Column("ended", Text, key="ended_at"),
    Column("outcome", Text),
    Column("error", Text, nullable=False, server_default=""),
    Column("milliseconds", REAL, key="duration_ms"),
    Column("bytes_in", Integer, nullable=False, server_default="0"),
    Column("bytes_out", Integer, nullable=False, server_default="0"),
    Column("calls", Integer, nullable=False, server_default="1"),
    Column("source", Text, nullable=False, server_default="code"),
    Column("conversation", Text),
    Column("copied", Integer, nullable=False, server_default="0"),
    Index("calls_execution", "namespace", "execution", "number"),
    Index("calls_namespace", "namespace", "number"),
    Index("calls_open", "number", sqlite_where=text("ended IS NULL")),
    Index("calls_uncopied", "number", sqlite_where=text("copied = 0 AND ended IS NOT NULL")),
    sqlite_autoincrement=True,
)
"""Calls from their beginning, by the fields of `ToolCallRecord`. Numbers rise with time. `copied` says whether the call
is in the records."""
VERSION: Final = Table(
    "records_schema",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)

RECORD_TABLES: Final = {
    table.name: table for table in (EXECUTIONS, CALLS, MODEL_USAGE, FEEDBACK, EXPOSURES, OUTCOMES, KEY_USES)
}
_INT64: Final = 1 << 63
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class RowRefused(ValueError):
    """A row that no database may be given: it would fail, and the rows of its batch with it."""


def check_row(table: Table, row: dict[str, object]) -> dict[str, object]:
    """Return the row with all columns that a sender sets, or raise RowRefused."""
    columns = {column.name: column for column in table.columns if column.name != "stored_at"}
    if unknown := row.keys() - columns.keys():
        raise RowRefused(f"{table.name}: unknown columns: {', '.join(sorted(map(str, unknown)))[:200]}")
    checked: dict[str, object] = {}
    for name, column in columns.items():
        value = row.get(name, _find_default(column))
        if value is None and not column.nullable:
            raise RowRefused(f"{table.name}.{name}: a value is required")
        if value is not None and (problem := _find_problem(column.type, value)):
            raise RowRefused(f"{table.name}.{name}: {problem}")
        checked[name] = value
    return checked


def _find_default(column: Column[Any]) -> object:
    return column.default.arg if isinstance(column.default, ScalarElementColumnDefault) else None


def _find_problem(kind: TypeEngine[object], value: object) -> str | None:
    match kind:
        case String():
            return _find_text_problem(value, kind.length or 0)
        case Boolean():
            return None if isinstance(value, bool) else "must be a boolean"
        case Float():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return None if is_number and abs(value) <= 1e300 else "must be a finite number"  # type: ignore[arg-type]
        case _:
            is_int64 = isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
            return None if is_int64 else "must be an integer of 64 bits"


def _find_text_problem(value: object, length: int) -> str | None:
    if not isinstance(value, str):
        return "must be a text"
    if len(value) > length:
        return f"has {len(value)} characters; at most {length} are allowed"
    if "\0" in value or _SURROGATE.search(value):
        return "contains a NUL or half of a surrogate pair, which databases cannot store"
    return None
