"""Commands that write files for others: skills for agents, training data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, LibraryOption, StoreOption, TargetOption, choose_target, known_skills, opened

if TYPE_CHECKING:
    from ..export import EvidenceFile
    from ..model import Target

export_app = typer.Typer(
    no_args_is_help=True, help="Training data: from naive kernels to expert ones, as chats (JSONL)."
)

evidence_app = typer.Typer(no_args_is_help=True, help="Lineages and verdicts as files, to keep and to share.")


class SkillFormat(StrEnum):
    """Formats of exported skills."""

    AGENT_SKILL = "agent-skill"
    CLAUDE_PLUGIN = "claude-plugin"
    CODEX = "codex"
    MARKDOWN = "markdown"
    JSON = "json"


OutOption = Annotated[Path, typer.Option("--out", help="The folder to write to.")]
HeldOutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hold-out",
        help="A task that must not enter. [default: layer_norm, matmul, softmax; 'none' holds nothing out]",
        show_default=False,
    ),
]


def skills_export(
    form: Annotated[SkillFormat, typer.Option("--format", help="For whom.")] = SkillFormat.AGENT_SKILL,
    out: OutOption = Path("exported-skills"),
    store: StoreOption = None,
    json: JsonOption = False,
    library: LibraryOption = None,
) -> None:
    """Write the skills as files that agents load, with an index of a few hundred tokens."""
    from rich.text import Text

    from ..export import export_skills
    from .output import show

    with opened(store) as evidence:
        skills = known_skills(evidence, library)
    written = export_skills(skills, form.value, out)
    page = f"{len(skills)} skills as {form.value} in {out}: {len(written)} files"
    show({"files": [str(p) for p in written]}, lambda: Text(page), as_json_text=json)


def _training(
    kind: str, out: Path, hold_out: list[str] | None, target: str | None, store: str | None, json: bool
) -> None:
    from rich.text import Text

    from ..errors import TaskError
    from ..export import HELD_OUT, training_data, write_dataset
    from ..model import TaskInfo
    from ..task import load_task
    from .output import show

    def info_of(name: str) -> TaskInfo | None:
        try:
            return load_task(name, check=False).info
        except TaskError:
            return None

    chosen = choose_target(target)
    held = tuple(n for n in hold_out if n != "none") if hold_out else HELD_OUT
    with opened(store) as evidence:
        latest = {line.task: line for line in evidence.lineages(target=chosen.name)}
        skills, kernels = known_skills(evidence, None), _kernels(held, chosen)
        data = training_data(kind, evidence, list(latest.values()), skills, info_of, held, kernels)
    file, card = write_dataset(data, out)
    page = f"{len(data.rows)} rows in {file}, card in {card}; held out: {', '.join(held) or 'nothing'}"
    result = {"rows": len(data.rows), "file": str(file), "card": str(card), "held_out": list(held)}
    show(result, lambda: Text(page), as_json_text=json)


def _kernels(tasks: Sequence[str], where: Target) -> list[str]:
    """The naive and expert kernels of tasks, as far as they are at hand."""
    from ..errors import KLineageError
    from ..task import load_task

    texts: list[str] = []
    for name in tasks:
        try:
            task = load_task(name, check=False)
            texts += [k.source for k in (task.naive(), task.expert(where)) if k is not None]
        except KLineageError:  # not a task here, or its package is not installed
            continue
    return texts


def export_sft(
    out: OutOption = Path("training-data"), hold_out: HeldOutOption = None, target: TargetOption = None,
    store: StoreOption = None, json: JsonOption = False,
) -> None:  # fmt: skip
    """Chats: a kernel, and the expert's next optimisation."""
    _training("sft", out, hold_out, target, store, json)


def export_preference(
    out: OutOption = Path("training-data"), hold_out: HeldOutOption = None, target: TargetOption = None,
    store: StoreOption = None, json: JsonOption = False,
) -> None:  # fmt: skip
    """Pairs: what the gate accepted, and what it did not or found slower."""
    _training("preference", out, hold_out, target, store, json)


def export_rl(
    out: OutOption = Path("training-data"), hold_out: HeldOutOption = None, target: TargetOption = None,
    store: StoreOption = None, json: JsonOption = False,
) -> None:  # fmt: skip
    """Transitions with rewards: state, skill, conditions, next state, verdict."""
    _training("rl", out, hold_out, target, store, json)


export_app.command("sft")(export_sft)
export_app.command("preference")(export_preference)
export_app.command("rl")(export_rl)


@evidence_app.command("export")
def evidence_export(
    tasks: Annotated[list[str] | None, typer.Argument(help="Tasks to write. [default: all in the store]")] = None,
    out: OutOption = Path("evidence"),
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write the store's evidence: one compact file per task, target and mode."""
    from ..export import export_evidence

    with opened(store) as evidence:
        written = export_evidence(evidence, out, tasks or None)
    _show_evidence(written, json)


@evidence_app.command("import")
def evidence_import(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders of them.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Read evidence into the store; what it holds already is kept once."""
    from ..export import import_evidence

    with opened(store) as evidence:
        read = import_evidence(evidence, paths)
    _show_evidence(read, json)


def _show_evidence(files: Sequence[EvidenceFile], as_json: bool) -> None:
    from rich.table import Table

    from .output import show

    def page() -> Table:
        table = Table(header_style="bold")
        for name in ("file", "task", "target", "mode", "device", "lineage", "verdicts"):
            table.add_column(name, justify="right" if name == "verdicts" else "left", overflow="fold")
        for f in files:
            walked = "yes" if f.lineage else "no"
            table.add_row(f.path.name, f.task, f.target, f.mode, f.device, walked, str(f.verdicts))
        return table

    rows = [{**dataclasses.asdict(f), "path": str(f.path)} for f in files]
    show({"files": rows}, page, as_json_text=as_json)
