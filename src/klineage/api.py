"""What the command line and other programs call: one function per job, values in, values out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from .errors import KernelError, KLineageError, TaskError
from .gate.gpu import choose
from .gate.judge import Gate, TaskGate
from .induce import ProbePlan
from .induce import induce as induce_from
from .library import load_library, shipped_library
from .model import Kernel, Lineage, Skill, SkillStatus, Verdict
from .model.optimize import HeldOut, OptimizeReport, QuickstartReport, RecoverReport, VerifyReport
from .model.progress import NullProgress, Progress
from .optimize import Ablation, verified
from .optimize import optimize as optimize_with
from .propose import Proposer
from .propose.make import ProposerChoice, make_proposer
from .store import open_store
from .store.base import Store
from .task import Task, load_task, shipped_tasks
from .walk import WalkBudget
from .walk import walk as walk_with

Result = TypeVar("Result")

QUICKSTART_WALKS = ("matmul_epilogue", "cross_entropy", "rms_norm", "swiglu")  # the longest first
QUICKSTART_TASKS = ("matmul", "layer_norm", "softmax")


class Session:
    """One target, one store and the gate's workers, shared by several jobs. Use as a context manager.

    Without ``target_name`` it measures on this machine's GPU, or models the default target when there is none; a named
    target is modelled. ``mode`` ("measured" or "modelled") insists on one.
    """

    def __init__(
        self, target_name: str | None = None, store: str | Store | None = None, progress: Progress | None = None,
        jobs: int = 2, mode: str | None = None,
    ) -> None:  # fmt: skip
        self.target, measured = choose(target_name, mode)
        self._own_store = not _is_store(store)
        self.store: Store = store if _is_store(store) else open_store(store)  # type: ignore[assignment,arg-type]
        self.progress = progress or NullProgress()
        self.gate = self._gate(measured=measured, jobs=jobs)
        self._judges: dict[str, TaskGate] = {}
        self._loading = threading.Lock()

    def _gate(self, measured: bool, jobs: int) -> Gate:
        if not measured:
            return Gate(self.target, self.store, jobs=jobs)
        from .gate.measured.judge import MeasuredGate

        return MeasuredGate(self.target, self.store, jobs=jobs)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers and close the store if this session opened it."""
        self.gate.close()
        if self._own_store:
            self.store.close()

    def task(self, name: str) -> Task:
        """A task by name or path, its degenerate answers refused."""
        return self.judge(name).task

    def judge(self, name: str) -> TaskGate:
        """The judge of a task by name or path."""
        with self._loading:
            if name not in self._judges:
                self._judges[name] = self.gate.bind(load_task(name))
            return self._judges[name]

    def prepare(self, names: Iterable[str]) -> None:
        """Load tasks and slice their experts behind the scenes, while other work goes on."""
        for name in names:
            self.gate.pool.submit(lambda n=name: self.judge(n).task.expert(self.target))

    def side_by_side(self, job: Callable[[str], Result], names: Sequence[str]) -> list[Result]:
        """The job's result for each name, as many at a time as there are workers. Ctrl-C or an error stops them all:
        what was judged is in the store."""
        with ThreadPoolExecutor(self.gate.jobs, thread_name_prefix="session") as pool:
            running = [pool.submit(job, name) for name in names]
            try:
                for finished in as_completed(running):
                    finished.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.gate.close()  # what is being judged ends now
                raise
        return [finished.result() for finished in running]

    def walk(self, name: str, budget: WalkBudget | None = None, proposer: ProposerChoice | None = None) -> Lineage:
        """Walk a task's expert backward; without a proposer chosen, by the moves."""
        made = make_proposer(proposer, self.store)
        judge = self.judge(name)
        expert = judge.task.expert(self.target)
        if expert is None:
            raise TaskError(f"task {judge.task.name} names no expert", "add EXPERT to the task file")
        with closing(made):
            return walk_with(judge, self.store, expert, budget, self.progress, made)

    def lineages(self, tasks: Iterable[str] | None = None) -> list[Lineage]:
        """The latest lineage of each task on this target, judged in this mode."""
        known = self.store.lineages(target=self.target.name)
        latest = {line.task: line for line in known if line.mode is self.gate.mode}
        wanted = None if tasks is None else {self.judge(t).info.name for t in tasks}
        return [line for name, line in sorted(latest.items()) if wanted is None or name in wanted]

    def induce(self, tasks: Iterable[str] | None = None, plan: ProbePlan | None = None) -> list[Skill]:
        """Induce skills from the stored lineages of these tasks (all when None)."""
        return induce_from(self.lineages(tasks), self.judge, self.store, plan, self.progress)

    def skills(self, without_task: str | None = None) -> list[Skill]:
        """The skills known here: the shipped library, then the store's, the latest of a name winning.

        ``without_task`` leaves out skills that only that task's lineage gave.
        """
        by_name = {s.name: s for s in load_library([shipped_library()])}
        by_name.update({s.name: s for s in self.store.skills()})
        return [s for s in by_name.values() if without_task is None or set(s.sources) != {without_task}]

    def optimize(
        self,
        name: str,
        kernel_path: str | None = None,
        budget: int = 10,
        skills: Sequence[Skill] | None = None,
        proposer: ProposerChoice | None = None,
        ablation: str = Ablation.FULL,
    ) -> OptimizeReport:
        """Apply skills to a task's kernel: the file given, else the task's naive start, else its expert.

        With a model as the proposer, skills are what it is told of; it may do without any.
        """
        made = make_proposer(proposer, self.store)
        judge = self.judge(name)
        start = read_kernel(kernel_path) if kernel_path else judge.task.naive() or judge.task.expert(self.target)
        if start is None:
            raise TaskError(f"task {judge.task.name} has no kernel to start from", "pass --kernel FILE")
        with closing(made):
            return self._optimize(judge, start, budget, skills, made, ablation)

    def _optimize(
        self,
        judge: TaskGate,
        start: Kernel,
        budget: int,
        skills: Sequence[Skill] | None,
        proposer: Proposer | None = None,
        ablation: str = Ablation.FULL,
    ) -> OptimizeReport:
        known = list(skills) if skills is not None else self.skills()
        if not known and (proposer is None or proposer.name == "moves"):
            raise KLineageError("no skill is known", "run: klineage walk TASK, then klineage induce")
        left = Ablation(ablation)
        return optimize_with(judge, self.store, start, known, budget, self.progress, proposer, left)

    def held_out(self, skills: Sequence[Skill]) -> list[str]:
        """Shipped tasks with a naive kernel that gave none of these skills."""
        used = {source for skill in skills for source in skill.sources}
        named = [(name, load_task(name, check=False)) for name in shipped_tasks()]
        return [name for name, task in named if task.info.name not in used and task.naive() is not None]

    def verify(
        self, names: Sequence[str] | None = None, budget: int = 10, skills: Sequence[Skill] | None = None
    ) -> VerifyReport:
        """Try skills on operators that gave none of them (the shipped ones when None); the store keeps how they stand.

        Raises KLineageError when no skill is known, or no operator is left to try them on.
        """
        started = time.monotonic()
        known = [s.model_copy(update={"status": SkillStatus.HYPOTHESIS}) for s in skills or self.skills()]
        if not known:
            raise KLineageError("no skill is known", "run: klineage walk TASK, then klineage induce")
        operators = list(names or self.held_out(known))
        if not operators:
            raise KLineageError("every shipped operator gave one of these skills", "name task files to verify them on")

        def attempt(name: str) -> HeldOut:
            try:
                return HeldOut(task=name, report=self.optimize(name, budget=budget, skills=known))
            except (KLineageError, TaskError) as error:
                return HeldOut(task=name, reason=str(error))

        found = self.side_by_side(attempt, operators)
        reports = [o.report for o in found if o.report is not None]
        judged = [verified(skill, reports, self.store.get_verdict) for skill in known]
        self.store.put_skills(judged)
        return VerifyReport(
            target=self.target.name,
            mode=self.gate.mode,
            operators=tuple(found),
            skills=tuple(judged),
            wall_s=time.monotonic() - started,
        )

    def recover(
        self, name: str, budget: int = 10, skills: Sequence[Skill] | None = None, ablation: str = Ablation.FULL
    ) -> RecoverReport:
        """From the naive end of a task's lineage back towards its expert, by skills alone.

        Walks the task first when the store holds no finished lineage of its present expert.
        """
        judge = self.judge(name)
        line = next(iter(self.lineages([name])), None)
        expert = judge.task.expert(self.target)
        if line is None or expert is None or line.expert != expert.id or line.end == "interrupted":
            line = self.walk(name)
        naive = self.store.get_kernel(line.naive)
        if naive is None:
            raise KLineageError("the lineage's naive kernel is not in the store", f"run: klineage walk {name}")
        if skills is None and not any(judge.info.name in s.sources for s in self.skills()):
            self.induce([name])
        report = self._optimize(judge, naive, budget, skills, ablation=ablation)
        return RecoverReport(
            task=report.task,
            target=report.target,
            mode=report.mode,
            expert_us=line.expert_us,
            naive_us=line.naive_us,
            recovered_us=report.best_us,
            recovered_kernel=report.best_kernel,
            tries=report.tries,
            skills=report.skills,
        )


def read_kernel(path: str) -> Kernel:
    """A kernel file as a value.

    Raises KernelError when it cannot be read.
    """
    try:
        source = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(
            f"cannot read the kernel {path}: {error}", "give a Python file that defines run(...)"
        ) from error
    return Kernel(source=source, origin=Path(path).name)


def walk(
    task: str,
    *,
    target: str | None = None,
    store: str | Store | None = None,
    progress: Progress | None = None,
    budget: WalkBudget | None = None,
    proposer: ProposerChoice | None = None,
    jobs: int = 2,
    mode: str | None = None,
) -> Lineage:
    """Walk a task's expert backward to its naive end; verdicts and lineage are kept in the store."""
    with Session(target, store, progress, jobs, mode) as session:
        return session.walk(task, budget, proposer)


def induce(
    *,
    target: str | None = None,
    store: str | Store | None = None,
    progress: Progress | None = None,
    tasks: Iterable[str] | None = None,
    plan: ProbePlan | None = None,
    jobs: int = 2,
    mode: str | None = None,
) -> list[Skill]:
    """Induce skills from stored lineages."""
    with Session(target, store, progress, jobs, mode) as session:
        return session.induce(tasks, plan)


def optimize(
    task: str,
    *,
    kernel_path: str | None = None,
    target: str | None = None,
    store: str | Store | None = None,
    budget: int = 10,
    skills: Sequence[Skill] | None = None,
    progress: Progress | None = None,
    proposer: ProposerChoice | None = None,
    jobs: int = 2,
    mode: str | None = None,
    ablation: str = Ablation.FULL,
) -> OptimizeReport:
    """Apply skills to a kernel within a budget of gate runs; ``ablation``: a value of ``optimize.Ablation``."""
    with Session(target, store, progress, jobs, mode) as session:
        return session.optimize(task, kernel_path, budget, skills, proposer, ablation)


def recover(
    task: str,
    *,
    target: str | None = None,
    store: str | Store | None = None,
    budget: int = 10,
    skills: Sequence[Skill] | None = None,
    progress: Progress | None = None,
    jobs: int = 2,
    mode: str | None = None,
    ablation: str = Ablation.FULL,
) -> RecoverReport:
    """Naive end back to the expert by skills alone; ``ablation``: a value of ``optimize.Ablation``."""
    with Session(target, store, progress, jobs, mode) as session:
        return session.recover(task, budget, skills, ablation)


def verify(
    tasks: Sequence[str] | None = None,
    *,
    target: str | None = None,
    store: str | Store | None = None,
    budget: int = 10,
    skills: Sequence[Skill] | None = None,
    progress: Progress | None = None,
    jobs: int = 2,
    mode: str | None = None,
) -> VerifyReport:
    """Try skills on operators that gave none of them, and say how each skill stands after it."""
    with Session(target, store, progress, jobs, mode) as session:
        return session.verify(tasks, budget, skills)


def gate(
    task: str,
    kernel_path: str,
    *,
    target: str | None = None,
    store: str | Store | None = None,
    progress: Progress | None = None,
    jobs: int = 2,
    mode: str | None = None,
) -> Verdict:
    """One verdict on one kernel file."""
    kernel = read_kernel(kernel_path)
    with Session(target, store, progress, jobs, mode) as session:
        session.store.put_kernel(kernel)
        return session.judge(task).judge(kernel)


def quickstart(
    *,
    target: str | None = None,
    store: str | Store | None = None,
    progress: Progress | None = None,
    budget: int = 10,
    jobs: int = 2,
    mode: str | None = None,
) -> QuickstartReport:
    """The main job in one go: walk four experts, induce skills, optimise three kernels never walked."""
    started = time.monotonic()
    with Session(target, store, progress, jobs, mode) as session:
        lineages = session.side_by_side(session.walk, QUICKSTART_WALKS)
        session.prepare(QUICKSTART_TASKS)
        skills = session.induce(QUICKSTART_WALKS, ProbePlan.light())

        def improve(name: str) -> OptimizeReport:
            return session.optimize(name, budget=budget, skills=skills)

        optimized = session.side_by_side(improve, QUICKSTART_TASKS)
        return QuickstartReport(
            target=session.target.name,
            mode=session.gate.mode,
            lineages=tuple(lineages),
            skills=tuple(skills),
            optimized=tuple(optimized),
            wall_s=time.monotonic() - started,
        )


@contextmanager
def session(
    target: str | None = None,
    store: str | Store | None = None,
    progress: Progress | None = None,
    jobs: int = 2,
    mode: str | None = None,
) -> Iterator[Session]:
    """A session for several jobs in a row."""
    with Session(target, store, progress, jobs, mode) as opened:
        yield opened


def _is_store(value: str | Store | None) -> bool:
    return value is not None and not isinstance(value, str)
