"""The command that scores the gate itself: hostile kernels must be turned away, honest ones must pass."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JobsOption, JsonOption, ModeOption, TargetOption, cores

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..gate.gate_score import GateScore

FamilyOption = Annotated[list[str] | None, typer.Option("--family", help="Judge this family only; may be repeated.")]
SampleOption = Annotated[
    int | None, typer.Option("--sample", min=1, help="Judge at most so many of each family, spread over it.")
]
HonestOption = Annotated[bool, typer.Option("--honest/--no-honest", help="Judge the honest kernels too.")]
CorpusOption = Annotated[
    bool, typer.Option("--corpus/--no-corpus", help="Let the policy look at slices of the expert packages installed.")
]

SecondsOption = Annotated[
    float | None,
    typer.Option("--seconds", min=1.0, help="Begin no kernel after so many; those left are told.", show_default=False),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", help="JSON lines, a result each, written as they come; a run that ended early goes on from there."
    ),
]


def gate_score(
    target: TargetOption = None,
    mode: ModeOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
    family: FamilyOption = None,
    sample: SampleOption = None,
    honest: HonestOption = True,
    corpus: CorpusOption = True,
    seconds: SecondsOption = None,
    out: OutOption = None,
) -> None:
    """Score the gate: hostile kernels planted, killed, by which layer; honest kernels passed.

    Exit status 1 when a hostile kernel is accepted or an honest one refused.
    """
    from ..gate.gallery import Gallery
    from ..gate.gate_score import Scorer, sampled
    from ..gate.gate_score import gate_score as score_gate
    from ..gate.gpu import choose
    from ..gate.score_file import ScoreFile
    from ..store import open_store
    from .work import _progress  # pyright: ignore[reportPrivateUsage]

    chosen, measured = choose(target, mode)
    gallery = Gallery()
    tricks = sampled(gallery, family, sample)
    file = ScoreFile(out) if out is not None else None
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="klineage-score-") as folder, _progress() as progress:
        store = open_store(Path(folder) / "store.db")
        scorer = Scorer(gallery, chosen, store, jobs=jobs or cores(), measured=measured)
        try:
            slices: Sequence[tuple[str, str]] = ()
            if corpus:
                from ..gate.honest import expert_slices

                slices = expert_slices(progress=progress)
            left_s = None if seconds is None else seconds - (time.monotonic() - started)
            score = score_gate(
                scorer, tricks=tricks, honest=honest, policy_only=slices, jobs=jobs or cores(), progress=progress,
                file=file, seconds=left_s,
            )  # fmt: skip
        finally:
            scorer.close()
            store.close()
            if file is not None:
                file.close()
    score = score.model_copy(update={"wall_s": round(time.monotonic() - started, 1)})
    from .output import as_json, show

    value = {**as_json(score), "problems": score.problems} if json else score
    show(value, lambda: score_page(score), as_json_text=json)
    if score.problems:
        raise typer.Exit(1)


def score_page(score: GateScore) -> RenderableType:
    """The table per family, what is wrong, and the honest kernels in one line."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Hostile and broken kernels", title_justify="left", header_style="bold")
    for name in ("family", "planted", "killed", "by layer", "without policy", "no effect", "by layer "):
        number = name in ("planted", "killed", "without policy", "no effect")
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in score.families:
        killed = Text(str(row.killed), "" if row.killed == row.planted else "red")
        bare = Text(str(row.killed_unpoliced), "" if row.killed_unpoliced + row.no_effect == row.planted else "red")
        table.add_row(
            row.family, str(row.planted), killed, _layers(row.layers), bare, str(row.no_effect or ""),
            _layers(row.unpoliced_layers),
        )  # fmt: skip
    table.add_section()
    total = score.families
    table.add_row(
        "all", str(sum(r.planted for r in total)), str(sum(r.killed for r in total)), "",
        str(sum(r.killed_unpoliced for r in total)), str(sum(r.no_effect for r in total) or ""), "",
    )  # fmt: skip
    judged = [h for h in score.honest if not h.policy_only]
    sliced = [h for h in score.honest if h.policy_only]
    after = [t for t in score.tricks if t.next_honest is not None]
    lines = [
        f"honest kernels judged: {sum(h.passed for h in judged)} of {len(judged)} accepted",
        f"honest expert slices past the policy: {sum(h.passed for h in sliced)} of {len(sliced)}",
        f"honest kernels judged right after a crash: {sum(t.next_honest == 'accepted' for t in after)} of {len(after)}",
        f"{score.target}, {score.mode}, isolation: {', '.join(score.isolation) or 'none'}; {score.wall_s:.0f} s",
    ]
    if score.left:
        lines.append(f"not judged, for the time was over: {score.left}; they count nowhere")
    problems = [Text(f"WRONG {line}", "bold red") for line in score.problems]
    return Group(table, *(Text(line) for line in lines), *problems)


def _layers(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
