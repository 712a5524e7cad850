"""Opening databases: SQLite files made safe against kills and concurrent writers, PostgreSQL by URL.

Every way in which opening can fail becomes one StoreError with its fix.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from ..errors import StoreError
from . import schema

BUSY_TIMEOUT_S = 60
WRITE = {"klineage_write": True}
"""Execution option of connections that are going to write: SQLite then takes the write lock at once, so that two
writers queue instead of both reading first and one failing."""


def sqlite_engine(path: Path | None) -> Engine:
    """An engine on an SQLite file (made with its folder when missing), or on memory when ``path`` is None."""
    if path is None:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        _check_file(path)
        engine = create_engine(
            URL.create("sqlite", database=str(path)),
            connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
        )
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def server_engine(url: str) -> Engine:
    """An engine on a database server named by an SQLAlchemy URL.

    Raises StoreError for a malformed URL, another database than PostgreSQL, or a missing driver.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "postgresql":
            raise StoreError(
                f"store URL names {parsed.get_backend_name()!r}", "use a file path, sqlite:/// or postgresql://"
            )
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        return create_engine(parsed, pool_pre_ping=True)
    except ArgumentError as error:
        raise StoreError("store URL cannot be read", "use a file path or postgresql://user@host/name") from error
    except ModuleNotFoundError as error:
        raise StoreError(
            f"no driver for this store: {error.name} is not installed", "pip install 'klineage[postgres]'"
        ) from error


def prepare(engine: Engine, location: str) -> None:
    """Make the tables when the database is new, check the schema's version otherwise.

    Raises StoreError when the database cannot be used.
    """
    try:
        with engine.connect().execution_options(**WRITE) as connection, connection.begin():
            _make_or_check(connection, location)
    except SQLAlchemyError as error:
        raise explain(error, location) from error


def explain(error: SQLAlchemyError, location: str) -> StoreError:
    """One clear line and the fix for a database error."""
    text = str(error.orig if isinstance(error, DBAPIError) and error.orig else error).strip().splitlines()
    detail = text[0] if text else type(error).__name__
    lowered = detail.lower()
    if "not a database" in lowered:
        return StoreError(f"{location} is not a KLineage store", "name another file with --store")
    if "malformed" in lowered or "corrupt" in lowered:
        return StoreError(
            f"store {location} is damaged ({detail})", "restore a copy, or move the file away to start a new store"
        )
    if "locked" in lowered:
        return StoreError(f"store {location} stays locked by another process", "end that process or wait for it")
    if "readonly" in lowered or "read-only" in lowered or "unable to open" in lowered:
        return StoreError(f"store {location} cannot be written ({detail})", "check its permissions or use --store")
    if "full" in lowered:
        return StoreError(f"store {location}: {detail}", "free some disk space and run the command again")
    return StoreError(f"store {location}: {detail}", "check the --store option and that the database runs")


def _check_file(path: Path) -> None:
    """Refuse what SQLite would report obscurely: folders, foreign files, missing permissions."""
    if path.is_dir():
        raise StoreError(f"store {path} is a directory", f"name a file, such as {path / 'store.db'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the store's folder {path.parent}: {error.strerror}", "choose another place with --store"
        ) from error
    if not path.exists():
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise StoreError(f"folder {path.parent} is not writable", "choose another place with --store")
        return
    if not path.is_file():
        raise StoreError(f"store {path} is not a regular file", "name another file with --store")
    if not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(f"store {path} is not readable and writable", "fix its permissions or use --store")
    with path.open("rb") as file:
        head = file.read(16)
    if head and head != b"SQLite format 3\x00":
        raise StoreError(f"{path} is not a KLineage store", "name another file with --store")


def _configure_sqlite(connection: Any, _record: Any) -> None:
    """Per connection: explicit transactions, write-ahead log, a commit that reaches the disk."""
    connection.isolation_level = None  # SQLAlchemy's begin event below sends BEGIN itself
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000}")
    _enter_wal(cursor)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _enter_wal(cursor: Any) -> None:
    """Switch to the write-ahead log; the switch ignores the busy timeout, so wait here for other openers."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once where writing is meant."""
    writing = connection.get_execution_options().get("klineage_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _make_or_check(connection: Connection, location: str) -> None:
    tables = set(inspect(connection).get_table_names())
    if not tables or (connection.dialect.name == "postgresql" and schema.meta.name not in tables):
        if connection.dialect.name == "postgresql":  # two processes may open a new database at once
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7055210)")
            tables = set(inspect(connection).get_table_names())
        if schema.meta.name not in tables:
            schema.metadata.create_all(connection)
            connection.execute(insert(schema.meta), {"key": "schema", "value": str(schema.SCHEMA_VERSION)})
            return
    missing = {t.name for t in schema.metadata.sorted_tables} - tables
    if schema.meta.name in missing:
        raise StoreError(f"{location} is a database of something else", "name another file with --store")
    version = connection.scalar(select(schema.meta.c.value).where(schema.meta.c.key == "schema"))
    if version is not None and version.isdigit() and int(version) > schema.SCHEMA_VERSION:
        raise StoreError(
            f"store {location} has schema {version}, newer than this klineage reads ({schema.SCHEMA_VERSION})",
            "upgrade klineage or use another --store",
        )
    if version != str(schema.SCHEMA_VERSION) or missing:
        raise StoreError(f"store {location} is incomplete or of an unknown schema", "move it away to start anew")
