"""The gallery of hostile and broken kernels that the gate must turn away, each named for its trick.

One TOML file per family. An entry is a whole module (``source``) or a mutant of a shipped kernel: ``task``, ``base``
("naive" or "expert"), ``edits`` ([old, new] pairs that must occur), ``prepend`` and ``append``. ``statuses`` are the
verdicts that are right for it. ``modelled`` says why a kernel may be accepted in the modelled mode once the policy is
switched off: there the trick has no effect. After an entry with ``crash`` an honest kernel is judged.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import KLineageError
from ..model import Kernel, Status, Target
from ..task import Task, load_task

_KEYS = {"name", "about", "task", "base", "source", "edits", "prepend", "append", "statuses", "modelled", "crash"}
_NEVER = {Status.ACCEPTED, Status.INFRA_ERROR, Status.INCONCLUSIVE, Status.REJECTED_SLOW}


@dataclass(frozen=True)
class Trick:
    """One entry. ``task`` is a shipped task's name or a file below the gallery."""

    name: str
    family: str
    task: str
    statuses: tuple[Status, ...]
    about: str = ""
    base: str = ""
    source: str = ""
    edits: tuple[tuple[str, str], ...] = ()
    prepend: str = ""
    append: str = ""
    modelled: str = ""
    crash: bool = False


class Gallery:
    """The tricks of a folder, with the tasks they attack (loaded once)."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or shipped_gallery()
        self.tricks = [trick for path in sorted(self.folder.glob("*.toml")) for trick in _read(path)]
        names = [t.name for t in self.tricks]
        if twice := {n for n in names if names.count(n) > 1}:
            raise KLineageError(f"two tricks of the gallery are named {sorted(twice)[0]}", "rename one")
        self._tasks: dict[str, Task] = {}

    @property
    def families(self) -> list[str]:
        """Families in order."""
        return list(dict.fromkeys(t.family for t in self.tricks))

    def task(self, name: str) -> Task:
        """A task that tricks attack. Raises TaskError."""
        if name not in self._tasks:
            self._tasks[name] = load_task(self.folder / name if name.endswith(".py") else name, check=False)
        return self._tasks[name]

    def kernel(self, trick: Trick, target: Target | None = None) -> Kernel:
        """The hostile kernel. Raises KLineageError when an edit does not apply."""
        text = trick.source or self._base(trick, target)
        for old, new in trick.edits:
            if old not in text:
                raise KLineageError(f"trick {trick.name}: the kernel does not hold {old!r}", "mend the edit")
            text = text.replace(old, new)
        text = f"{trick.prepend}{text}{trick.append}"
        return Kernel(source=text, origin=f"hostile/{trick.family}/{trick.name}")

    def _base(self, trick: Trick, target: Target | None) -> str:
        task = self.task(trick.task)
        kernel = task.naive() if trick.base == "naive" else task.expert(target)
        if kernel is None:
            raise KLineageError(f"trick {trick.name}: task {trick.task} has no {trick.base} kernel", "give its source")
        return kernel.source


def shipped_gallery() -> Path:
    """The gallery's folder: in the wheel, else in the repository. Raises KLineageError."""
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "_shipped" / "hostile", here.parents[3] / "tests" / "hostile"):
        if folder.is_dir():
            return folder
    raise KLineageError("the gallery of hostile kernels is not installed", "reinstall klineage")


def _read(path: Path) -> list[Trick]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return [_trick(path.stem, {**data.get("defaults", {}), **entry}) for entry in data["trick"]]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise KLineageError(f"gallery file {path}: {error}", "see docs/gate.md") from error


def _trick(family: str, entry: Mapping[str, Any]) -> Trick:
    name = entry["name"]
    if unknown := set(entry) - _KEYS:
        raise ValueError(f"{name} has an unknown key {sorted(unknown)[0]!r}")
    statuses = tuple(Status(s) for s in entry.get("statuses", ("rejected_hack", "rejected_numeric")))
    if _NEVER & set(statuses):
        raise ValueError(f"{name} would count as killed by {sorted(_NEVER & set(statuses))[0]}")
    edits = tuple((old, new) for old, new in entry.get("edits", ()))
    fields = {k: v for k, v in entry.items() if k not in ("statuses", "edits", "name", "task")}
    if fields.pop("source", ""):
        fields.pop("base", None)
        fields["source"] = entry["source"]
    return Trick(name=name, family=family, task=entry["task"], statuses=statuses, edits=edits, **fields)
