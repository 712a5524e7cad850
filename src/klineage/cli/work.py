"""Commands that judge kernels: quickstart, walk, induce, optimize, recover, gate."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .models import (
    AnswerOption,
    BaseUrlOption,
    ExchangesOption,
    ModelOption,
    MoneyOption,
    PricesOption,
    PromptsOption,
    ProposerOption,
    RecordOption,
    ReplayOption,
    TimeoutOption,
    TokensOption,
    WaitOption,
    chosen_proposer,
)
from .options import (
    JobsOption,
    JsonOption,
    LibraryOption,
    ModeOption,
    SkillsOption,
    StoreOption,
    TargetOption,
    choose_target,
    chosen_skills,
    cores,
    opened,
)

if TYPE_CHECKING:
    from ..model.progress import Progress
    from ..store import Store

TaskArgument = Annotated[str, typer.Argument(help="A shipped task's name, a task file, or a KernelBench file.")]
BudgetOption = Annotated[int, typer.Option("--budget", min=1, help="Most tries.")]
RefusedOption = Annotated[bool, typer.Option("--refused", help="Show refused simplifications too, dimmed.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Write the resulting kernel to this file.")]


@contextmanager
def _progress() -> Generator[Progress, None, None]:
    from .output import console
    from .progress import RichProgress

    with RichProgress(console(stderr=True)) as progress:
        yield progress


def quickstart(
    target: TargetOption = None,
    mode: ModeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
    budget: BudgetOption = 10,
    refused: RefusedOption = False,
) -> None:
    """Walk expert kernels to their naive end, induce skills, optimise kernels never walked."""
    chosen = choose_target(target)
    with opened(store) as evidence, _progress() as progress:
        from .. import api

        report = api.quickstart(
            target=target and chosen.name,
            mode=mode,
            store=evidence,
            progress=progress,
            budget=budget,
            jobs=jobs or cores(),
        )
    from ..report import quickstart_page
    from .output import show

    show(report, lambda: quickstart_page(report, refused=refused), as_json_text=json)


def walk(
    task: TaskArgument,
    target: TargetOption = None,
    mode: ModeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Most steps to take.")] = None,
    gates: Annotated[int | None, typer.Option("--gates", min=1, help="Most candidates to judge.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="Longest time to walk.")] = None,
    refused: RefusedOption = False,
    proposer: ProposerOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    prompts: PromptsOption = None,
    record: RecordOption = None,
    replay: ReplayOption = None,
    exchanges: ExchangesOption = 60,
    tokens: TokensOption = None,
    money: MoneyOption = None,
    prices: PricesOption = None,
    wait: WaitOption = 3600.0,
    timeout: TimeoutOption = 180.0,
    answer_tokens: AnswerOption = 8192,
) -> None:
    """Take a task's expert kernel backward, one validated simplification at a time."""
    who = chosen_proposer(
        proposer, model, base_url, prompts, record, replay, exchanges, tokens, money, prices, wait, timeout,
        answer_tokens,
    )  # fmt: skip
    chosen = choose_target(target)
    with opened(store) as evidence, _progress() as progress:
        from .. import api
        from ..walk import WalkBudget

        limits = {"steps": steps, "gates": gates, "seconds": seconds}
        budget = WalkBudget(**{name: limit for name, limit in limits.items() if limit is not None})
        lineage = api.walk(
            task,
            target=target and chosen.name,
            mode=mode,
            store=evidence,
            progress=progress,
            budget=budget,
            proposer=who,
            jobs=jobs or cores(),
        )
    from ..report import lineage_page
    from .output import show

    show(lineage, lambda: lineage_page(lineage, refused=refused), as_json_text=json)


def induce(
    tasks: Annotated[list[str] | None, typer.Argument(help="Tasks walked before. [default: all in the store]")] = None,
    target: TargetOption = None,
    mode: ModeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Also write each skill to a file in this folder.")] = None,
) -> None:
    """Turn the steps of the walks round into skills, merge them, probe their bounds."""
    chosen = choose_target(target)
    with opened(store) as evidence, _progress() as progress:
        from .. import api

        skills = api.induce(
            target=target and chosen.name,
            mode=mode,
            store=evidence,
            progress=progress,
            tasks=tasks or None,
            jobs=jobs or cores(),
        )
    if out is not None:
        from ..library import save_skill

        for skill in skills:
            save_skill(skill, out)
    from ..report import skills_table
    from .output import show

    show({"skills": skills}, lambda: skills_table(skills), as_json_text=json)


def optimize(
    task: TaskArgument,
    kernel: Annotated[
        Path | None, typer.Option("--kernel", help="Start here. [default: the task's naive kernel]")
    ] = None,
    budget: BudgetOption = 10,
    target: TargetOption = None,
    mode: ModeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
    library: LibraryOption = None,
    skills_left: SkillsOption = None,
    out: OutOption = None,
    proposer: ProposerOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    prompts: PromptsOption = None,
    record: RecordOption = None,
    replay: ReplayOption = None,
    exchanges: ExchangesOption = 60,
    tokens: TokensOption = None,
    money: MoneyOption = None,
    prices: PricesOption = None,
    wait: WaitOption = 3600.0,
    timeout: TimeoutOption = 180.0,
    answer_tokens: AnswerOption = 8192,
) -> None:
    """Take a kernel forward: match skills to its sites, keep what the gate accepts and is faster."""
    who = chosen_proposer(
        proposer, model, base_url, prompts, record, replay, exchanges, tokens, money, prices, wait, timeout,
        answer_tokens,
    )  # fmt: skip
    chosen = choose_target(target)
    with opened(store) as evidence, _progress() as progress:
        skills = chosen_skills(library)
        from .. import api

        report = api.optimize(
            task,
            kernel_path=str(kernel) if kernel else None,
            target=target and chosen.name,
            mode=mode,
            store=evidence,
            budget=budget,
            skills=skills,
            progress=progress,
            proposer=who,
            jobs=jobs or cores(),
            ablation=skills_left or "full",
        )
        _write_kernel(evidence, report.best_kernel, out)
    from ..report import optimize_page
    from .output import show

    show(report, lambda: optimize_page(report), as_json_text=json)


def verify(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(help="Operators to try skills on. [default: the shipped ones that gave none of them]"),
    ] = None,
    budget: BudgetOption = 10,
    target: TargetOption = None,
    mode: ModeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
    library: LibraryOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Also write each skill to a file in this folder.")] = None,
) -> None:
    """Try skills on held-out operators: a measured gain verifies a skill, none anywhere demotes it."""
    chosen = choose_target(target)
    with opened(store) as evidence, _progress() as progress:
        skills = chosen_skills(library)
        from .. import api

        report = api.verify(
            tasks or None,
            target=target and chosen.name,
            mode=mode,
            store=evidence,
            budget=budget,
            skills=skills,
            progress=progress,
            jobs=jobs or cores(),
        )
    if out is not None:
        from ..library import save_skill

        for skill in report.skills:
            save_skill(skill, out)
    from ..report import verify_page
    from .output import show

    show(report, lambda: verify_page(report), as_json_text=json)


def recover(
    task: TaskArgument,
    budget: BudgetOption = 10,
    target: TargetOption = None,
    mode: ModeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
    library: LibraryOption = None,
    skills_left: SkillsOption = None,
    out: OutOption = None,
) -> None:
    """From a walked task's naive end, go back to the expert's speed by skills alone."""
    chosen = choose_target(target)
    with opened(store) as evidence, _progress() as progress:
        skills = chosen_skills(library)
        from .. import api

        report = api.recover(
            task,
            target=target and chosen.name,
            mode=mode,
            store=evidence,
            budget=budget,
            skills=skills,
            progress=progress,
            jobs=jobs or cores(),
            ablation=skills_left or "full",
        )
        _write_kernel(evidence, report.recovered_kernel, out)
    from ..report import recover_page
    from .output import show

    show(report, lambda: recover_page(report), as_json_text=json)


def gate(
    task: TaskArgument,
    kernel: Annotated[Path, typer.Argument(help="A file with Triton kernels and run(*inputs).")],
    target: TargetOption = None,
    mode: ModeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    jobs: JobsOption = None,
) -> None:
    """Judge one kernel. Exit status 0: accepted, 1: not accepted."""
    chosen = choose_target(target)
    with opened(store) as evidence, _progress() as progress:
        from .. import api

        verdict = api.gate(
            task,
            str(kernel),
            target=target and chosen.name,
            mode=mode,
            store=evidence,
            progress=progress,
            jobs=jobs or cores(),
        )
    from ..report import verdict_page
    from .output import show

    show(verdict, lambda: verdict_page(verdict), as_json_text=json)
    if not verdict.accepted:
        raise typer.Exit(1)


def _write_kernel(store: Store, kernel_id: str, out: Path | None) -> None:
    """Write a kernel's source to ``out`` when asked to."""
    if out is None:
        return
    from ..errors import KLineageError, StoreError

    kernel = store.get_kernel(kernel_id)
    if kernel is None:
        raise StoreError(f"kernel {kernel_id} is not in the store", "run the command again")
    try:
        out.write_text(kernel.source, encoding="utf-8")
    except OSError as error:
        raise KLineageError(f"cannot write {out}: {error.strerror}", "choose another file with --out") from error
