"""Induce skills from the lineages in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import KLineageError
from ..gate.protocol import Judge
from ..model import Lineage, Skill
from ..model.progress import NullProgress, Progress
from ..store.base import Store
from .merge import group, induce_skill
from .probe import ProbePlan, Prober


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
    skills: list[Skill] = []
    progress.start("induce skills", len(grouped))
    try:
        for key, sources in sorted(grouped.items()):
            strongest = max(sources, key=lambda s: s.step.speedup)
            same_task = [strongest, *(s for s in sources if s.lineage.task == strongest.lineage.task)]
            probe = Prober(judge_of(strongest.lineage.task), plan).probe(key[1], same_task)
            skill = induce_skill(key, sources, probe.preconditions, probe.effects, probe.risks, probe.evidence)
            store.put_skills([skill])
            skills.append(skill)
            progress.step(f"{skill.name}: {len(sources)} source(s), {skill.expected_speedup:.2f}x")
    finally:
        progress.done()
    return skills
