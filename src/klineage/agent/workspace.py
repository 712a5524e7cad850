"""Workspaces: a folder of files that any agent with a shell can work in. The budget is kept in the store, not there."""

from __future__ import annotations

import fcntl
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..api import Session, read_kernel
from ..errors import KLineageError
from ..model import Frozen, Kernel, Verdict
from ..model.optimize import Try
from ..store.base import Store
from ..surface.query import normal
from . import text
from .desk import Desk

BUDGET = 10
GAIN = 1.01  # as the optimisation: a kernel is kept when it is at least this much faster
KERNEL, BEST, GUIDE, SKILLS, HISTORY = "kernel.py", "best.py", "AGENTS.md", "SKILLS.md", "HISTORY.md"
LOCK = ".lock"


class AgentState(Frozen):
    """How far a workspace is. Kernels and verdicts are ids."""

    task: str  # as the user named it
    target: str
    folder: str
    budget: int
    start: str
    best: str
    best_verdict: str
    tries: tuple[Try, ...] = ()

    @property
    def spent(self) -> int:
        """Gate runs used."""
        return sum(t.verdict is not None for t in self.tries)

    @property
    def left(self) -> int:
        """Gate runs left."""
        return self.budget - self.spent


@dataclass(frozen=True)
class Submission:
    """What a submission came to. ``verdict`` is None when there was nothing to judge."""

    state: AgentState
    kept: bool
    reason: str
    verdict: Verdict | None = None
    incumbent: Verdict | None = None


def start(
    session: Session, task: str, folder: Path, kernel: Path | None = None, budget: int = BUDGET, *, anew: bool = False
) -> AgentState:
    """Judge the start kernel and write the workspace.

    Raises KLineageError when one is under way (unless ``anew``), the folder holds something else, or the gate does not
    accept the start.
    """
    known = _load(session.store, _name(task), session.target.name)
    if known is not None and not anew:
        raise KLineageError(f"work on {task} is under way in {known.folder}", "go on there, or --anew")
    if folder.exists() and any(folder.iterdir()) and not (folder / GUIDE).is_file():
        raise KLineageError(f"{folder} holds something else", "name another folder with --dir")
    desk = Desk(session)
    judge = session.judge(task)
    begin = read_kernel(str(kernel)) if kernel else desk.start_kernel(judge)
    session.store.put_kernel(begin)
    verdict = judge.judge(begin)
    if not verdict.accepted:
        raise KLineageError(
            f"the start kernel is not accepted: {verdict.status}: {verdict.reason}", "start from a kernel that is right"
        )
    state = AgentState(
        task=_name(task),
        target=session.target.name,
        folder=str(folder.resolve()),
        budget=budget,
        start=begin.id,
        best=begin.id,
        best_verdict=verdict.id,
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KERNEL).write_text(begin.source, encoding="utf-8")
    _keep(session.store, state)
    _write(desk, state)
    return state


def submit(session: Session, task: str, intent: str = "", kernel: Path | None = None) -> Submission:
    """Judge the workspace's kernel (or another file) against the best so far.

    A kernel that is the best one again, or was judged before, costs no try. Raises KLineageError when no work is under
    way or the budget is spent.
    """
    folder = Path(status(session.store, task, session.target.name).folder)
    with _alone(folder):
        return _submit(session, task, intent, kernel)


@contextmanager
def _alone(folder: Path) -> Generator[None, None, None]:
    """One submission of a workspace at a time, whatever the process: each must see the tries of the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise KLineageError(f"cannot write {folder}: {error.strerror}", "check its permissions") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released with the file, however the process ends
        yield


def _submit(session: Session, task: str, intent: str, kernel: Path | None) -> Submission:
    store = session.store
    state = status(store, task, session.target.name)
    candidate = read_kernel(str(kernel or Path(state.folder) / KERNEL))
    incumbent = store.get_verdict(state.best_verdict)
    if _text(store, state.best) == normal(candidate.source):
        return Submission(state, False, "unchanged: this is the best kernel so far; no try was used", None, incumbent)
    before = {normal(k.source): t for t in state.tries for k in [store.get_kernel(t.kernel or "")] if k is not None}
    if normal(candidate.source) in before:
        same = before[normal(candidate.source)]
        return Submission(state, False, f"judged before as try {same.index + 1}: {same.reason}", None, incumbent)
    if state.left <= 0:
        raise KLineageError(f"the budget of {state.budget} tries is spent", f"the best is {state.folder}/{BEST}")
    desk = Desk(session)
    verdict = desk.judge(task, candidate, incumbent)
    state = _counted(state, candidate, verdict, incumbent, intent)
    _keep(store, state)
    _write(desk, state)
    last = state.tries[-1]
    return Submission(state, last.decision == "kept", last.reason, verdict, incumbent)


def status(store: Store, task: str, target: str) -> AgentState:
    """How far the work on a task is. Raises KLineageError when none is under way."""
    state = _load(store, _name(task), target)
    if state is None:
        raise KLineageError(f"no work on {task} for {target} is under way", f"klineage agent start {task}")
    return state


def status_text(state: AgentState, store: Store) -> str:
    """Where it stands: best, budget, history."""
    start_us, best_us = _time(store, state.start, state), _time(store, state.best, state)
    gain = f", {start_us / best_us:.2f}x the start" if start_us and best_us else ""
    return "\n".join(
        [
            f"{state.task} on {state.target}: best {state.best} {text.time_text(best_us)}{gain}",
            f"{state.left} of {state.budget} tries left; workspace {state.folder}",
            text.tries_text(state.tries),
        ]
    )


def _counted(
    state: AgentState, candidate: Kernel, verdict: Verdict, incumbent: Verdict | None, intent: str
) -> AgentState:
    """The state after one more try."""
    before = incumbent.latency_us if incumbent else None
    after = verdict.latency_us
    kept = bool(verdict.accepted and before and after and after * GAIN <= before)
    if kept and before and after:
        reason = f"{before / after:.2f}x faster ({verdict.mode})"
    elif after and before:
        reason = f"no gain: {before / after:.2f}x ({verdict.mode})"
    else:
        reason = f"{verdict.status}: {verdict.reason}"
    done = Try(
        index=len(state.tries),
        skill=intent,
        move="",
        site="",
        decision="kept" if kept else "refused",
        reason=reason,
        before_us=before or 0.0,
        after_us=after,
        kernel=candidate.id,
        verdict=verdict.id,
    )
    update: dict[str, object] = {"tries": (*state.tries, done)}
    if kept:
        update |= {"best": candidate.id, "best_verdict": verdict.id}
    return state.model_copy(update=update)


def _name(task: str) -> str:
    """A task as any folder names it: a file by its absolute path, else the shipped name."""
    return str(Path(task).resolve()) if Path(task).is_file() else task


def _key(task: str, target: str) -> str:
    return f"agent/{task}/{target}"


def _load(store: Store, task: str, target: str) -> AgentState | None:
    kept = store.checkpoint(_key(task, target))
    return None if kept is None else AgentState.model_validate(kept)


def _keep(store: Store, state: AgentState) -> None:
    store.set_checkpoint(_key(state.task, state.target), state.model_dump(mode="json"))


def _text(store: Store, kernel: str) -> str:
    found = store.get_kernel(kernel)
    return "" if found is None else normal(found.source)


def _time(store: Store, kernel: str, state: AgentState) -> float | None:
    if kernel == state.best:
        verdict = store.get_verdict(state.best_verdict)
        return verdict.latency_us if verdict else None
    if state.tries:
        return state.tries[0].before_us
    return None


def _write(desk: Desk, state: AgentState) -> None:
    """Lay the workspace's files out anew; ``kernel.py`` is the agent's own and stays."""
    folder, store = Path(state.folder), desk.session.store
    best = store.get_kernel(state.best)
    if best is None:
        raise KLineageError(f"kernel {state.best} is not in the store", f"klineage agent start {state.task} --anew")
    verdict = store.get_verdict(state.best_verdict)
    candidates, rejected = desk.matches(state.task, best)
    files = {
        BEST: best.source,
        GUIDE: _guide(desk, state),
        SKILLS: f"# Skills that hold in {BEST}\n\n{text.matches_text(candidates, rejected)}\n",
        HISTORY: "\n\n".join(
            [
                f"# History\n\n{state.left} of {state.budget} tries left.",
                text.tries_text(state.tries),
                f"## Verdict of {BEST}\n\n{text.verdict_text(verdict) if verdict else 'lost'}\n",
            ]
        ),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


def _guide(desk: Desk, state: AgentState) -> str:
    store = shlex.quote(desk.session.store.location)  # the agent may work in another folder
    options = f"--target {state.target} --store {store}"
    return f"""# Make this kernel faster

Edit `{KERNEL}`, then run

    klineage agent submit {state.task} {options} -m "what you changed and why"

Each submission is judged against the best kernel so far and uses one of {state.budget} tries; an unchanged kernel uses
none. `klineage agent status {state.task} {options}` tells where you stand.

- `{KERNEL}`: yours to edit. `{BEST}`: the best accepted so far.
- `{SKILLS}`: optimisations learned from expert kernels that hold here, where, and what others lack.
- `{HISTORY}`: every verdict, and what decides the time of the best kernel.
- `klineage skills explain NAME --store {store}`: when a skill is sound, what it brought, what went wrong.

{desk.describe(state.task, with_kernel=False)}
"""
