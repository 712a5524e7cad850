"""Tables of the store. Evidence is append-only: triggers refuse every update and delete."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    event,
)

SCHEMA_VERSION = 1

metadata = MetaData()

meta = Table("meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text, nullable=False))

kernels = Table(
    "kernels",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("source", Text, nullable=False),
    Column("entry", Text, nullable=False),
    Column("language", String(16), nullable=False),
    Column("parent", String(64)),
    Column("origin", Text, nullable=False),
    Column("created", Float, nullable=False),  # seconds since the epoch, here and below
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("task_id", String(64), nullable=False),
    Column("kernel", String(64), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("status", String(32), nullable=False),
    Column("incumbent", String(64)),
    Column("json", Text, nullable=False),
    Column("created", Float, nullable=False),
    Index("verdicts_by_key", "task_id", "kernel", "fingerprint"),
)


def _json_rows(name: str, *keys: str) -> Table:
    """A table of JSON values in order of arrival, looked up by ``keys``."""
    return Table(
        name,
        metadata,
        Column("seq", Integer, primary_key=True, autoincrement=True),
        *(Column(key, Text, nullable=False) for key in keys),
        Column("json", Text, nullable=False),
        Column("created", Float, nullable=False),
        Index(f"{name}_by_key", *keys),
    )


steps = _json_rows("steps", "run")
refusals = _json_rows("refusals", "run")
lineages = _json_rows("lineages", "task", "target")
skills = _json_rows("skills", "name", "id")
checkpoints = _json_rows("checkpoints", "key")

artifacts = Table(
    "artifacts",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("size", Integer, nullable=False),  # bytes
    Column("created", Float, nullable=False),
)

APPEND_ONLY = (kernels, verdicts, steps, refusals, lineages, skills, checkpoints, artifacts)


def newest_first(table: Table) -> ColumnElement[int]:
    """Ordering of a table of arrivals, latest first."""
    return table.c.seq.desc()


def _guard(table: Table) -> None:
    """Have the database itself refuse to change or drop rows of ``table``."""
    for action in ("UPDATE", "DELETE"):
        name = f"{table.name}_no_{action.lower()}"
        sqlite = (
            f"CREATE TRIGGER {name} BEFORE {action} ON {table.name} "
            f"BEGIN SELECT RAISE(ABORT, '{table.name} is append-only'); END"
        )
        postgresql = (
            f"CREATE TRIGGER {name} BEFORE {action} ON {table.name} "
            "FOR EACH ROW EXECUTE FUNCTION klineage_append_only()"
        )
        event.listen(table, "after_create", DDL(sqlite).execute_if(dialect="sqlite"))
        event.listen(table, "after_create", DDL(postgresql).execute_if(dialect="postgresql"))


_POSTGRESQL_GUARD = """
CREATE OR REPLACE FUNCTION klineage_append_only() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN RAISE EXCEPTION ''klineage evidence is append-only''; END'
"""
event.listen(metadata, "before_create", DDL(_POSTGRESQL_GUARD).execute_if(dialect="postgresql"))
for _table in APPEND_ONLY:
    _guard(_table)
