"""Connections to the database of the records, SQLite or PostgreSQL."""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, event, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from mcp_exec_broker.settings import Settings

MAX_FILE_BYTES: Final = 1 << 40
"""Size of an SQLite file without a limit of its own."""
_PAGE_BYTES: Final = 4096
_CONNECTIONS: Final = 10
"""Connections: for the requests that are answered at once, and for the maintenance."""
_LOCK_SECONDS: Final = 10.0


def find_database(settings: Settings) -> str | Path | None:
    """Return the database that the settings name; None means no records. Raises ValueError, OSError."""
    if settings.records_file is not None and settings.records_database_file is not None:
        raise ValueError("records_file and records_database_file are set: choose one")
    if settings.records_database_file is None:
        return settings.records_file
    url = settings.records_database_file.read_text().strip()
    if not url:
        raise ValueError(f"{settings.records_database_file} is empty")
    return url


def create_engine(database: str | Path, *, max_bytes: int) -> AsyncEngine:
    """Return the engine of an SQLite file, which gets at most `max_bytes` large, or of a URL of PostgreSQL.

    Raises ValueError if the URL is of another kind.
    """
    if isinstance(database, str):
        url = make_url(database)
        if url.drivername not in ("postgresql", "postgres", "postgresql+asyncpg"):
            raise ValueError(f"records.database: the scheme is {url.drivername!r}; only postgresql:// is allowed")
        return create_async_engine(
            url.set(drivername="postgresql+asyncpg"),
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=_LOCK_SECONDS,
            pool_pre_ping=True,
            connect_args={"timeout": _LOCK_SECONDS, "command_timeout": 30},
        )
    url = URL.create("sqlite+aiosqlite", database=str(database))
    engine = create_async_engine(
        url, pool_size=_CONNECTIONS, max_overflow=0, pool_timeout=_LOCK_SECONDS, connect_args={"timeout": _LOCK_SECONDS}
    )
    database.parent.mkdir(parents=True, exist_ok=True)

    def configure(connection: Any, _record: object) -> None:
        _configure_sqlite(connection.cursor(), max_bytes)

    event.listen(engine.sync_engine, "connect", configure)
    return engine


def _configure_sqlite(cursor: Any, max_bytes: int) -> None:
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an execution is deleted once its record is stored
    cursor.execute(limit_pages(max_bytes))
    cursor.close()


def limit_pages(max_bytes: int) -> str:
    """Return the statement that limits the bytes of an SQLite file for a connection."""
    return f"PRAGMA max_page_count = {max(max_bytes // _PAGE_BYTES, 1)}"
