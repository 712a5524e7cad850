"""Induce skills from the lineages in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed

from ..errors import KLineageError
from ..gate.protocol import Judge
from ..model import Lineage, Skill
from ..model.progress import NullProgress, Progress
from ..store.base import Store
from .merge import Source, group, induce_skill
from .probe import ProbePlan, Prober

_AT_ONCE = 4  # skills probed


def induce(
    lineages: Iterable[Lineage],
    judge_of: Callable[[str], Judge],
    store: Store,
    plan: ProbePlan | None = None,
    progress: Progress | None = None,
) -> list[Skill]:
    """Skills of all steps whose inverse was re-derived; kept in the store one by one, so stopping loses none.

    ``judge_of`` gives the judge of a task by name. Raises KLineageError when no lineage holds a skill.
    """
    progress = progress or NullProgress()
    plan = plan or ProbePlan()
    grouped, _ = group(lineages, store.get_kernel)
    if not grouped:
        raise KLineageError("no lineage with a re-derived step is in the store", "run: klineage walk TASK")

    def one(key: tuple[str, str], sources: list[Source]) -> Skill:
        strongest = max(sources, key=lambda s: s.step.speedup)
        same_task = [strongest, *(s for s in sources if s.lineage.task == strongest.lineage.task)]
        probe = Prober(judge_of(strongest.lineage.task), plan).probe(key[1], same_task)
        skill = induce_skill(key, sources, probe.preconditions, probe.effects, probe.risks, probe.evidence)
        store.put_skills([skill])
        return skill

    progress.start("induce skills", len(grouped))
    try:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="induce") as pool:  # the judge's workers are processes
            running = [pool.submit(one, key, sources) for key, sources in sorted(grouped.items())]
            try:
                for finished in as_completed(running):
                    skill = finished.result()
                    progress.step(f"{skill.name}: {len(skill.sources)} source(s), {skill.expected_speedup:.2f}x")
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)  # those begun are kept
                raise
    finally:
        progress.done()
    return [finished.result() for finished in running]
