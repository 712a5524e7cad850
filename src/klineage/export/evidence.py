"""Evidence as files: one per task, target and mode, to be kept beside skills and read into another store.

A file is gzipped JSON: the lineage (when the task was walked), its refusals, and every verdict of the task that was
reached for that target in that mode. Kernels' texts are not in it: experts belong to the packages they come from, and a
step can be taken again from its move and parameters.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..errors import KLineageError
from ..model import Lineage, Verdict
from ..store.base import Store

FORMAT = 1
SUFFIX = ".json.gz"


@dataclass(frozen=True)
class EvidenceFile:
    """What one file holds."""

    path: Path
    task: str
    target: str
    mode: str
    device: str
    lineage: bool
    verdicts: int


def export_evidence(store: Store, folder: Path, tasks: Sequence[str] | None = None) -> list[EvidenceFile]:
    """Write the store's evidence into ``folder``, of all tasks or of those named; returns what was written.

    Raises KLineageError when there is none, or the folder cannot be written.
    """
    grouped: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in store.verdicts():
        if tasks is None or verdict.task in tasks:
            key = verdict.task, verdict.environment.target, str(verdict.mode)
            grouped.setdefault(key, []).append(verdict)
    if not grouped:
        raise KLineageError("the store holds no verdict to export", "run: klineage walk TASK")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(store, folder, key, verdicts) for key, verdicts in sorted(grouped.items())]
    except OSError as error:
        raise KLineageError(
            f"cannot write {error.filename or folder}: {error.strerror}", "name another --out"
        ) from error


def import_evidence(store: Store, paths: Iterable[Path]) -> list[EvidenceFile]:
    """Read files (or folders of them) into the store; what it holds already is kept once.

    Raises KLineageError, naming the file, when one is missing or is no evidence; those before it stay imported.
    """
    return [_read(store, path) for path in _files(paths)]


def _write(store: Store, folder: Path, key: tuple[str, str, str], verdicts: list[Verdict]) -> EvidenceFile:
    task, target, mode = key
    lines = [line for line in store.lineages(task, target) if line.mode == mode]
    data = {
        "format": FORMAT,
        "task": task,
        "target": target,
        "mode": mode,
        "lineage": lines[-1].model_dump(mode="json", exclude_defaults=True) if lines else None,
        "verdicts": [v.model_dump(mode="json", exclude_defaults=True) for v in verdicts],
    }
    path = folder / f"{task}-{target}-{mode}{SUFFIX}"
    text = json.dumps(data, separators=(",", ":"), sort_keys=True).encode()
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(gzip.compress(text, mtime=0))  # the same evidence gives the same bytes
    part.replace(path)
    return EvidenceFile(path, task, target, mode, verdicts[-1].environment.device, bool(lines), len(verdicts))


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not inside:
            raise KLineageError(f"no evidence (*{SUFFIX}) in {path}", "give the folder that an export wrote")
        found += inside
    return found


def _read(store: Store, path: Path) -> EvidenceFile:
    try:
        data: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        if data.get("format") != FORMAT:
            raise KLineageError(f"{path} is of another format ({data.get('format')})", "export it again")
        verdicts = [Verdict.model_validate(v) for v in data["verdicts"]]
        lineage = Lineage.model_validate(data["lineage"]) if data["lineage"] else None
    except OSError as error:
        reason = error.strerror or str(error)
        raise KLineageError(f"cannot read evidence {path}: {reason}", "check the path") from error
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zlib.error, ValidationError) as error:
        what = str(error).splitlines()[0]
        raise KLineageError(f"{path} is no evidence: {what}", "export it again") from error
    for verdict in verdicts:
        store.put_verdict(verdict)
    if lineage is not None and lineage not in store.lineages(lineage.task, lineage.target):
        store.put_lineage(lineage)
    device = verdicts[-1].environment.device if verdicts else ""
    task, target, mode = str(data["task"]), str(data["target"]), str(data["mode"])
    return EvidenceFile(path, task, target, mode, device, lineage is not None, len(verdicts))
