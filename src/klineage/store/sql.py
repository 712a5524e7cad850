"""The store on SQL: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Insert, Select, Table, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from ..errors import StoreError
from ..model.base import Frozen
from ..model.kernel import Kernel
from ..model.lineage import Lineage, Refusal, Step
from ..model.skill import Skill
from ..model.verdict import Status, Verdict
from . import schema
from .artifacts import ArtifactFolder
from .engine import WRITE, explain, prepare

V = TypeVar("V", bound=Frozen)
_TIMED = (Status.ACCEPTED.value, Status.REJECTED_SLOW.value)


class SqlStore:
    """Implements the Store protocol over an SQLAlchemy engine and a folder of artifacts."""

    def __init__(self, engine: Engine, artifacts: ArtifactFolder, location: str) -> None:
        self._engine = engine
        self._artifacts = artifacts
        self.location = location
        prepare(engine, location)

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    def put_kernel(self, kernel: Kernel) -> str:
        """See Store."""
        row = {"id": kernel.id, **kernel.model_dump(mode="json"), "created": time.time()}
        with self._write() as connection:
            connection.execute(self._insert_once(schema.kernels, "id"), row)
        return kernel.id

    def get_kernel(self, kernel_id: str) -> Kernel | None:
        """See Store."""
        columns = [c for c in schema.kernels.c if c.name not in ("id", "created")]
        with self._read() as connection:
            found = connection.execute(select(*columns).where(schema.kernels.c.id == kernel_id))
            row = found.mappings().one_or_none()
        return None if row is None else Kernel.model_validate(dict(row))

    def put_verdict(self, verdict: Verdict) -> str:
        """See Store."""
        row = {
            "id": verdict.id,
            "task_id": verdict.task_id,
            "kernel": verdict.kernel,
            "fingerprint": verdict.environment.fingerprint,
            "status": verdict.status.value,
            "incumbent": verdict.incumbent,
            "json": verdict.model_dump_json(),
            "created": time.time(),
        }
        with self._write() as connection:
            connection.execute(self._insert_once(schema.verdicts, "id"), row)
        return verdict.id

    def get_verdict(self, verdict_id: str) -> Verdict | None:
        """See Store."""
        return self._first(Verdict, select(schema.verdicts.c.json).where(schema.verdicts.c.id == verdict_id))

    def find_verdict(
        self, task_id: str, kernel_id: str, fingerprint: str, incumbent: str | None = None
    ) -> Verdict | None:
        """See Store."""
        c = schema.verdicts.c
        same = c.incumbent.is_(None) if incumbent is None else c.incumbent == incumbent
        query = (
            select(c.json)
            .where(c.task_id == task_id, c.kernel == kernel_id, c.fingerprint == fingerprint)
            .where(c.status != Status.INFRA_ERROR.value)
            .where(or_(c.status.not_in(_TIMED), same))
            .order_by(schema.newest_first(schema.verdicts))
        )
        return self._first(Verdict, query)

    def verdicts(
        self, *, task_id: str | None = None, kernel_id: str | None = None, status: Status | None = None
    ) -> list[Verdict]:
        """See Store."""
        keys = {"task_id": task_id, "kernel": kernel_id, "status": status.value if status else None}
        return self._all(Verdict, schema.verdicts, keys)

    def put_step(self, run: str, step: Step) -> None:
        """See Store."""
        self._append(schema.steps, [({"run": run}, step)])

    def steps(self, run: str) -> list[Step]:
        """See Store."""
        return self._all(Step, schema.steps, {"run": run})

    def put_refusal(self, run: str, refusal: Refusal) -> None:
        """See Store."""
        self._append(schema.refusals, [({"run": run}, refusal)])

    def refusals(self, run: str) -> list[Refusal]:
        """See Store."""
        return self._all(Refusal, schema.refusals, {"run": run})

    def put_lineage(self, lineage: Lineage) -> None:
        """See Store."""
        self._append(schema.lineages, [({"task": lineage.task, "target": lineage.target}, lineage)])

    def lineages(self, task: str | None = None, target: str | None = None) -> list[Lineage]:
        """See Store."""
        return self._all(Lineage, schema.lineages, {"task": task, "target": target})

    def latest_lineage(self, task: str, target: str) -> Lineage | None:
        """See Store."""
        table = schema.lineages
        query = select(table.c.json).where(table.c.task == task, table.c.target == target)
        return self._first(Lineage, query.order_by(schema.newest_first(table)))

    def put_skills(self, skills: Iterable[Skill]) -> None:
        """See Store."""
        self._append(schema.skills, [({"name": s.name, "id": s.id}, s) for s in skills])

    def skills(self) -> list[Skill]:
        """See Store."""
        table = schema.skills
        latest = select(func.max(table.c.seq)).group_by(table.c.name)
        query = select(table.c.json).where(table.c.seq.in_(latest)).order_by(table.c.name)
        return self._parse_all(Skill, query)

    def skill_history(self, name: str) -> list[Skill]:
        """See Store."""
        return self._all(Skill, schema.skills, {"name": name})

    def put_artifact(self, data: bytes, kind: str = "") -> str:
        """See Store. The file is on disk before the row names it."""
        digest = self._artifacts.put(data)
        row = {"hash": digest, "kind": kind, "size": len(data), "created": time.time()}
        with self._write() as connection:
            connection.execute(self._insert_once(schema.artifacts, "hash"), row)
        return digest

    def get_artifact(self, digest: str) -> bytes:
        """See Store."""
        return self._artifacts.get(digest)

    def set_checkpoint(self, key: str, value: Any) -> None:
        """See Store."""
        row = {"key": key, "json": json.dumps(value), "created": time.time()}
        with self._write() as connection:
            connection.execute(schema.checkpoints.insert(), row)

    def checkpoint(self, key: str) -> Any | None:
        """See Store."""
        table = schema.checkpoints
        query = select(table.c.json).where(table.c.key == key).order_by(schema.newest_first(table)).limit(1)
        with self._read() as connection:
            text = connection.scalar(query)
        return None if text is None else json.loads(text)

    def check(self) -> str:
        """See Store."""
        if self._engine.dialect.name != "sqlite":
            return "ok"  # a server looks after its own files
        with self._read() as connection:
            return str(connection.exec_driver_sql("PRAGMA integrity_check").scalar())

    @contextmanager
    def _read(self) -> Generator[Connection, None, None]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise explain(error, self.location) from error

    @contextmanager
    def _write(self) -> Generator[Connection, None, None]:
        """One transaction; committed when the block ends, undone when it raises."""
        try:
            with self._engine.connect().execution_options(**WRITE) as connection, connection.begin():
                yield connection
        except SQLAlchemyError as error:
            raise explain(error, self.location) from error

    def _insert_once(self, table: Table, key: str) -> Insert:
        """An insert that leaves an existing row of the same key as it is."""
        dialect = postgresql if self._engine.dialect.name == "postgresql" else sqlite
        return dialect.insert(table).on_conflict_do_nothing(index_elements=[key])

    def _append(self, table: Table, rows: Sequence[tuple[dict[str, str], Frozen]]) -> None:
        now = time.time()
        values = [{**keys, "json": value.model_dump_json(), "created": now} for keys, value in rows]
        if not values:
            return
        with self._write() as connection:
            connection.execute(table.insert(), values)

    def _all(self, kind: type[V], table: Table, keys: dict[str, str | None]) -> list[V]:
        query = select(table.c.json).order_by(table.c.seq)
        for key, value in keys.items():
            if value is not None:
                query = query.where(table.c[key] == value)
        return self._parse_all(kind, query)

    def _parse_all(self, kind: type[V], query: Select[Any]) -> list[V]:
        with self._read() as connection:
            texts = list(connection.scalars(query))
        return [self._parse(kind, text) for text in texts]

    def _first(self, kind: type[V], query: Select[Any]) -> V | None:
        with self._read() as connection:
            text = connection.scalar(query.limit(1))
        return None if text is None else self._parse(kind, text)

    def _parse(self, kind: type[V], text: str) -> V:
        """A row back to its value. A row that no longer fits comes from another version of klineage."""
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise StoreError(
                f"store {self.location} holds a {kind.__name__.lower()} this klineage cannot read "
                f"({where}: {first['msg']})",
                "move the store away to start anew, or use the klineage that wrote it",
            ) from error
