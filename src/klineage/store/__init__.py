"""Append-only evidence: SQLite by default, PostgreSQL by URL; artifacts by content hash."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from ..errors import StoreError
from .artifacts import ArtifactFolder
from .base import Store
from .engine import server_engine, sqlite_engine
from .sql import SqlStore

DEFAULT_STORE = Path(".klineage") / "store.db"

__all__ = ["DEFAULT_STORE", "ArtifactFolder", "SqlStore", "Store", "open_store"]


def open_store(place: str | Path | None = None, artifacts: Path | None = None) -> SqlStore:
    """Open a store, making it when it is not there.

    ``place`` is a file path, ``sqlite:///path``, ``:memory:`` or ``postgresql://...``; None is
    ``.klineage/store.db`` under the current folder. ``artifacts`` is the folder of artifacts: by default beside the
    SQLite file, else ``.klineage/artifacts`` under the current folder.

    Raises StoreError when the store cannot be used.
    """
    text = str(place) if place is not None else str(DEFAULT_STORE)
    default_artifacts = DEFAULT_STORE.parent / "artifacts"
    if text == ":memory:":
        return SqlStore(sqlite_engine(None), ArtifactFolder(artifacts or default_artifacts), text)
    if "://" in text and not text.startswith("sqlite:"):
        engine = server_engine(text)
        shown = engine.url.render_as_string(hide_password=True)
        return SqlStore(engine, ArtifactFolder((artifacts or default_artifacts).absolute()), shown)
    path = _sqlite_path(text).absolute()
    return SqlStore(sqlite_engine(path), ArtifactFolder(artifacts or path.parent / "artifacts"), str(path))


def _sqlite_path(text: str) -> Path:
    if not text.startswith("sqlite:"):
        return Path(text).expanduser()
    try:
        database = make_url(text).database
    except ArgumentError as error:
        raise StoreError(f"store URL {text!r} cannot be read", "use sqlite:///path/to/store.db") from error
    if not database:
        raise StoreError(f"store URL {text!r} names no file", "use sqlite:///path/to/store.db")
    return Path(database)
