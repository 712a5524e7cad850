"""Training data: the way from a naive kernel to the expert's as chats, in the columns that TRL and datasets read.

``sft``: messages. ``preference``: prompt, chosen, rejected. ``rl``: prompt, completion, reward, label, and the
transition they stand for (state, skill, conditions, next state, verdict). Prompts are the ones the model is asked with.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import KLineageError
from ..llm import Prompts
from ..model import CaseRole, Kernel, Lineage, Skill, Status, Step, TaskInfo, Verdict, target
from ..optimize import Situation, match
from ..propose import facts
from ..store.base import Store
from ..surface.query import normal
from .card import card
from .leaks import fingerprints, without_held_out

KINDS = ("sft", "preference", "rl")
HELD_OUT = ("layer_norm", "matmul", "softmax")  # what the quickstart optimises and never walks
REJECTED_REWARD = -1.0
REWARD_LIMIT = 4.0  # of log2 of the speedup
PAIRS_PER_STATE = 4

Row = dict[str, Any]


@dataclass(frozen=True)
class Transition:
    """One way on from a state, with the gate's verdict. ``step`` is set for the expert's own way."""

    info: TaskInfo
    state: Kernel
    state_verdict: Verdict
    next: Kernel
    verdict: Verdict
    move: str
    skill: Skill | None
    step: Step | None = None

    @property
    def reward(self) -> float:
        """log2 of the speedup, within +-4; -1 for what the gate does not accept."""
        before, after = self.state_verdict.latency_us, self.verdict.latency_us
        if before is None or after is None:
            return REJECTED_REWARD
        return max(-REWARD_LIMIT, min(REWARD_LIMIT, math.log2(before / after)))


@dataclass
class Dataset:
    """Rows of one kind, and what was left out of them and why."""

    kind: str
    rows: list[Row] = field(default_factory=list)
    held_out: tuple[str, ...] = ()
    left_out: Counter[str] = field(default_factory=Counter)
    origins: tuple[str, ...] = ()  # where expert kernels came from, with their licences


def training_data(
    kind: str,
    store: Store,
    lineages: Sequence[Lineage],
    skills: Sequence[Skill],
    info_of: Callable[[str], TaskInfo | None],
    held_out: Sequence[str] = HELD_OUT,
    held_out_kernels: Sequence[str] = (),
) -> Dataset:
    """The rows that the lineages give.

    Nothing of a held-out task enters: no row of it, no skill that it taught, no kernel function that it shares with any
    kernel judged for it or given in ``held_out_kernels`` (texts). Raises KLineageError for an unknown kind, or when
    nothing is left.
    """
    if kind not in KINDS:
        raise KLineageError(f"unknown kind {kind!r}", f"choose one of {', '.join(KINDS)}")
    data = Dataset(kind, held_out=tuple(sorted(held_out)))
    known = without_held_out(skills, held_out)
    data.left_out["skills that a held-out task taught"] = len(skills) - len(known)
    used = [line for line in lineages if line.task not in held_out]
    data.left_out["lineages of held-out tasks"] = len(lineages) - len(used)
    forbidden = _kernels_of(set(held_out), store) | {f for text in held_out_kernels for f in fingerprints(text)}
    prompts = Prompts()
    for line in used:
        info = info_of(line.task)
        if info is None:
            data.left_out["lineages whose task is not known here"] += 1
            continue
        for transitions in _by_state(line, info, store, known):
            clean = [t for t in transitions if not _leaks(t, forbidden)]
            data.left_out["transitions that share a kernel with a held-out task"] += len(transitions) - len(clean)
            data.rows += _rows(kind, clean, known, prompts, line.target)
    data.origins = _origins(used, store)
    if not data.rows:
        raise KLineageError(
            "no lineage gives training data", "run: klineage walk TASK (of a task that is not held out)"
        )
    return data


def write_dataset(data: Dataset, folder: Path) -> tuple[Path, Path]:
    """Write ``KIND.jsonl`` and the dataset card ``README.md``; returns both paths.

    Raises KLineageError when the folder cannot be written.
    """
    file, page = folder / f"{data.kind}.jsonl", folder / "README.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in data.rows]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        page.write_text(card(data), encoding="utf-8")
    except OSError as error:
        raise KLineageError(f"cannot write below {folder}: {error.strerror}", "choose another folder") from error
    return file, page


# ----------------------------------------------------------------------------------------------------- transitions


def _by_state(line: Lineage, info: TaskInfo, store: Store, skills: Sequence[Skill]) -> Iterator[list[Transition]]:
    """From the naive end to the expert: the ways on from each state, the expert's own first."""
    children = _children(line, store)
    by_move = {(s.move, source): s for s in skills for source in s.sources}
    for step in reversed(line.steps):
        state, verdict = store.get_kernel(step.simpler), store.get_verdict(step.verdict)
        better = store.get_kernel(step.optimised)
        better_verdict = _verdict_of(line, step, store)
        if state is None or verdict is None or better is None or better_verdict is None:
            continue
        skill = by_move.get((step.move, line.task))
        found = [Transition(info, state, verdict, better, better_verdict, step.move, skill, step)]
        for kernel, judged in children.get(state.id, []):
            move = kernel.origin.partition(" ")[2]
            if normal(kernel.source) not in {normal(t.next.source) for t in found}:
                found.append(Transition(info, state, verdict, kernel, judged, move, by_move.get((move, line.task))))
        yield found


def _verdict_of(line: Lineage, step: Step, store: Store) -> Verdict | None:
    """The verdict of a step's optimised side: the step's before it, or the expert's."""
    wanted = line.expert_verdict if step.index == 0 else line.steps[step.index - 1].verdict
    return store.get_verdict(wanted)


def _children(line: Lineage, store: Store) -> dict[str, list[tuple[Kernel, Verdict]]]:
    """Judged kernels that something was put into, by the kernel it was put into."""
    children: dict[str, list[tuple[Kernel, Verdict]]] = {}
    seen: set[str] = set()
    own = store.get_verdict(line.expert_verdict)
    for verdict in store.verdicts(task_id=own.task_id) if own else ():
        kernel = store.get_kernel(verdict.kernel)
        if kernel is None or kernel.parent is None or kernel.id in seen or verdict.environment.target != line.target:
            continue
        if kernel.origin.startswith(("materialize ", "skill ", "unchecked ")):
            seen.add(kernel.id)
            children.setdefault(kernel.parent, []).append((kernel, verdict))
    return children


def _kernels_of(held_out: set[str], store: Store) -> frozenset[str]:
    """Fingerprints of every kernel function that was judged for held-out tasks and accepted."""
    ids = {v.kernel for v in store.verdicts(status=Status.ACCEPTED) if v.task in held_out}
    kernels = [k for k in (store.get_kernel(i) for i in sorted(ids)) if k is not None]
    return frozenset(f for k in kernels for f in fingerprints(k.source))


def _leaks(t: Transition, forbidden: frozenset[str]) -> bool:
    return bool(forbidden & {*fingerprints(t.state.source), *fingerprints(t.next.source)})


# ------------------------------------------------------------------------------------------------------------ rows


def _rows(
    kind: str, transitions: Sequence[Transition], skills: Sequence[Skill], prompts: Prompts, where: str
) -> Iterator[Row]:
    if not transitions:
        return
    prompt = _prompt(transitions[0], skills, prompts, where)
    good = [t for t in transitions if t.verdict.accepted and t.reward >= 0.0]
    if kind == "sft":
        for t in good[:1] if good and good[0].step else []:
            yield {"messages": [*prompt, *_answer(t)], **_about(t, where)}
    elif kind == "rl":
        for t in transitions:
            yield {"prompt": prompt, "completion": _answer(t), "reward": round(t.reward, 4), "label": t.reward > 0.0,
                   **_about(t, where), **_transition(t)}  # fmt: skip
    elif good:
        best = max(good, key=lambda t: t.reward)
        worse = sorted((t for t in transitions if t.reward < best.reward - 0.01), key=lambda t: t.reward)
        for t in worse[:PAIRS_PER_STATE]:
            rewards = {"reward_chosen": round(best.reward, 4), "reward_rejected": round(t.reward, 4)}
            why = facts.stable(t.verdict.reason) or str(t.verdict.status)
            yield {"prompt": prompt, "chosen": _answer(best), "rejected": _answer(t), **rewards,
                   "why_rejected": why, **_about(best, where)}  # fmt: skip


def _prompt(t: Transition, skills: Sequence[Skill], prompts: Prompts, where: str) -> list[Row]:
    """The prompt that the model is asked with about this state."""
    bench = t.info.with_role(CaseRole.BENCH)
    place = target(where)
    launches = {c.name: t.state_verdict.launches for c in bench}
    candidates, rejected = match(skills, Situation(t.state.source, place, bench, launches))
    told: Row = {
        "form": "text",
        "task": facts.task_facts(t.info),
        "target": {"name": place.name, "part": place.part},
        "kernel": facts.kernel_facts(t.state, t.state_verdict.latency_us, t.state_verdict.mode),
        "sites": facts.site_facts(t.state.source),
        "gates_left": 10,
        "profile": facts.profile_facts(t.state_verdict),
        "skills": facts.skill_facts(candidates, ()),
        "nearly": facts.nearly_facts(rejected),
        "vocabulary": facts.move_facts(),
        "answers": [],
    }
    system, user = prompts.render("system", told), prompts.render("improve", told)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _answer(t: Transition) -> list[Row]:
    """The answer in the form that the prompt asks for."""
    intent = t.step.intent if t.step else t.move.replace("_", " ")
    site = t.step.site.label if t.step else ""
    head = [f"move: {t.move or 'none'}", f"intent: {intent}"]
    head += [f"site: {site}"] if site else []
    head += [f"skill: {t.skill.name}"] if t.skill else []
    code = f"```python\n{t.next.source.strip()}\n```"
    return [{"role": "assistant", "content": "\n".join([*head, code])}]


def _about(t: Transition, where: str) -> Row:
    return {
        "task": t.info.name,
        "target": where,
        "move": t.move,
        "level": t.step.index if t.step else -1,  # 0: the expert's last step; the naive end's is the largest
        "provenance": str(t.verdict.mode),
        "verdict": t.verdict.id,
    }


def _transition(t: Transition) -> Row:
    conditions = [p.statement for p in t.skill.preconditions] if t.skill else []
    return {
        "state": t.state.id,
        "next_state": t.next.id,
        "skill": t.skill.name if t.skill else "",
        "conditions": conditions,
        "status": str(t.verdict.status),
        "reason": t.verdict.reason,
        "state_us": t.state_verdict.latency_us or 0.0,
        "next_us": t.verdict.latency_us or 0.0,
    }


def _origins(lineages: Sequence[Lineage], store: Store) -> tuple[str, ...]:
    """The comment with which a sliced expert says where it is from, else its origin."""
    found: set[str] = set()
    for line in lineages:
        expert = store.get_kernel(line.expert)
        if expert is not None:
            first = expert.source.partition("\n")[0]
            found.add(first.removeprefix("# ") if first.startswith("# Cut out of") else expert.origin or expert.id)
    return tuple(sorted(found))
