"""Options that every command shares, and what they open."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..model import Skill, Target
    from ..store import Store

TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="Model this one: sm_80, sm_89, sm_90 ... [default: measure on the GPU, else sm_90]"),
]
Mode = StrEnum("Mode", {"MEASURED": "measured", "MODELLED": "modelled"})
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        "--mode", help="Insist on one. [default: modelled with --target or without a GPU]", show_default=False
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="SQLite file or postgresql:// URL. [default: .klineage/store.db]", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Candidates judged at once. [default: the cores]", show_default=False),
]
LibraryOption = Annotated[
    list[Path] | None,
    typer.Option("--library", help="Skills' files or folders, in place of the shipped ones and the store's."),
]

SkillsLeft = StrEnum(
    "SkillsLeft",
    {"FULL": "full", "NO_CONDITIONS": "no-conditions", "LABELS_ONLY": "labels-only",
     "GENERATED_ONLY": "generated-only", "NONE": "none"},
)  # fmt: skip
SkillsOption = Annotated[
    SkillsLeft | None,
    typer.Option("--skills", help="Ablation: use only this much of the skills. [default: full]", show_default=False),
]


def cores() -> int:
    """Cores this process may use: the default of --jobs."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_target(name: str | None) -> Target:
    """The target named, or the default. Raises TargetError."""
    if name is None:
        from ..gate.gpu import default_target

        return default_target()
    from ..model import target

    return target(name)


@contextmanager
def opened(place: str | None) -> Generator[Store, None, None]:
    """The store, closed at the end. Raises StoreError."""
    from ..store import open_store

    store = open_store(place)
    try:
        yield store
    finally:
        store.close()


def chosen_skills(library: list[Path] | None) -> list[Skill] | None:
    """Skills of ``library``, or None (all that is known) when it is not given."""
    from ..library import load_library

    return load_library(library) if library else None


def known_skills(store: Store, library: list[Path] | None) -> list[Skill]:
    """Skills of ``library`` when given; else the shipped ones, the store's standing for those of the same name."""
    from ..library import load_library

    chosen = chosen_skills(library)
    if chosen is not None:
        return chosen
    by_name = {skill.name: skill for skill in [*load_library(), *store.skills()]}
    return [by_name[name] for name in sorted(by_name)]
