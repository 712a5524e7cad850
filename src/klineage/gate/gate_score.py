"""How good the gate is: every hostile kernel of the gallery judged with and without the static policy, every honest
kernel judged too, and a table of what turned the hostile ones away."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from ..errors import KLineageError
from ..model import Frozen, Kernel, Provenance, Status, Target, content_hash
from ..model.progress import NullProgress, Progress
from ..model.verdict import Layer
from ..task.loader import shipped_tasks
from .environment import modelled_environment
from .gallery import Gallery, Trick
from .judge import Gate, TaskGate
from .policy import check_policy
from .protocol import VerdictStore
from .score_file import ScoreFile
from .workers import Limits

LIMITS = Limits(wall_s=30.0, memory_bytes=4 << 30)
QUICK = Limits(wall_s=12.0, memory_bytes=4 << 30)  # for tricks that may wait for the end of it
# without the policy a kernel may fail in another way than its entry expects, but never these
_NOT_REJECTED = {Status.ACCEPTED, Status.INFRA_ERROR, Status.INCONCLUSIVE, Status.REJECTED_SLOW}


class TrickResult(Frozen):
    """What became of one hostile kernel. ``unpoliced`` is the verdict with the static policy switched off."""

    name: str
    family: str
    status: Status
    layer: Layer | None
    reason: str
    unpoliced: Status
    unpoliced_layer: Layer | None
    unpoliced_reason: str
    modelled: str = ""  # why the modelled mode may accept it without the policy
    next_honest: Status | None = None  # verdict of the honest kernel judged after a crash
    problem: str = ""  # what is wrong with the gate, or ""
    judge_s: float = 0.0


class HonestResult(Frozen):
    """What became of one honest kernel; ``status`` is ``accepted`` for a slice that only the policy looked at."""

    name: str
    status: Status
    reason: str = ""
    policy_only: bool = False

    @property
    def passed(self) -> bool:
        """Whether it was not refused."""
        return self.status is Status.ACCEPTED


class FamilyScore(Frozen):
    """One row of the table."""

    family: str
    planted: int
    killed: int
    killed_unpoliced: int
    no_effect: int  # without the policy accepted, because the trick does nothing in this mode
    layers: dict[str, int]
    unpoliced_layers: dict[str, int]


class GateScore(Frozen):
    """The whole score."""

    target: str
    mode: Provenance
    isolation: tuple[str, ...]
    families: tuple[FamilyScore, ...]
    tricks: tuple[TrickResult, ...]
    honest: tuple[HonestResult, ...]
    left: int = 0  # kernels that were not judged, because the time was over; in none of the counts
    wall_s: float = 0.0

    @property
    def problems(self) -> list[str]:
        """Hostile kernels not turned away as they should be, and honest ones refused."""
        found = [f"{t.family}/{t.name}: {t.problem}" for t in self.tricks if t.problem]
        return found + [f"honest {h.name}: {h.status} {h.reason}" for h in self.honest if not h.passed]


class Scorer:
    """Judges tricks with one gate; thread-safe. Close it when done."""

    def __init__(
        self, gallery: Gallery, target: Target, store: VerdictStore, jobs: int = 2, *, measured: bool = False
    ) -> None:
        self.gallery, self.target = gallery, target
        self._cache = tempfile.TemporaryDirectory(prefix="klineage-score-")  # not the one that other runs use
        self._measured = measured
        make: type[Gate] = Gate
        if measured:
            from .measured.judge import MeasuredGate

            make = MeasuredGate
        cache = Path(self._cache.name)
        self.gate = make(target, store, jobs=jobs, limits=LIMITS, cache_dir=cache)
        self._quick = make(target, store, jobs=jobs, limits=QUICK, cache_dir=cache)
        self._judges: dict[tuple[str, bool], TaskGate] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop the workers."""
        self.gate.close()
        self._quick.close()
        self._cache.cleanup()

    def judge(self, task: str, *, quick: bool = False) -> TaskGate:
        """The judge of a task that tricks attack; a ``quick`` one has little patience."""
        with self._lock:
            if (task, quick) not in self._judges:
                self._judges[task, quick] = (self._quick if quick else self.gate).bind(self.gallery.task(task))
            return self._judges[task, quick]

    def place(self, task: str) -> str:
        """Equal where the judge and its environment are."""
        if self._measured:
            return self.judge(task).environment.fingerprint
        return modelled_environment(self.target).fingerprint  # without making a judge, which takes seconds

    def trick(self, trick: Trick) -> TrickResult:
        """Judge one hostile kernel, and after a crash an honest one."""
        judge = self.judge(trick.task, quick=trick.crash)
        kernel = self.gallery.kernel(trick, self.target)
        findings = check_policy(kernel.source)
        free = judge.examine(kernel, policed=False, brief=not self._measured)
        status, layer, reason = free.status, free.layer, free.reason
        if findings:
            status, layer, reason = Status.REJECTED_POLICY, Layer.POLICY, str(findings[0])
        after = self._honest_after(judge) if trick.crash else None
        result = TrickResult(
            name=trick.name, family=trick.family, status=status, layer=layer, reason=reason,
            unpoliced=free.status, unpoliced_layer=free.layer, unpoliced_reason=free.reason,
            modelled=trick.modelled, next_honest=after, judge_s=free.judge_s,
        )  # fmt: skip
        return result.model_copy(update={"problem": _problem(trick, result)})

    @staticmethod
    def _honest_after(judge: TaskGate) -> Status | None:
        naive = judge.task.naive()
        return judge.examine(naive).status if naive is not None else None

    def honest(self, task: str, kernel: Kernel, name: str) -> HonestResult:
        """Judge one honest kernel."""
        verdict = self.judge(task).examine(kernel)
        return HonestResult(name=name, status=verdict.status, reason=verdict.reason)

    def honest_kernels(self) -> Iterable[tuple[str, Kernel, str]]:
        """(task, kernel, name) of every kernel that shipped tasks and the gallery's own tasks bring and that this
        machine has: experts of packages that are not installed are left out."""
        own = [f"tasks/{p.name}" for p in sorted((self.gallery.folder / "tasks").glob("*.py"))]
        for name in [*shipped_tasks(), *own]:
            task = self.gallery.task(name)
            if (naive := task.naive()) is not None:
                yield name, naive, f"{task.name} (naive)"
            try:
                expert = task.expert(self.target)
            except KLineageError:
                continue
            if expert is not None:
                yield name, expert, f"{task.name} (expert)"


def _problem(trick: Trick, result: TrickResult) -> str:
    if result.status not in trick.statuses:
        return f"{result.status} ({result.reason[:120]}), expected {' or '.join(trick.statuses)}"
    if result.unpoliced in _NOT_REJECTED and not (trick.modelled and result.unpoliced is Status.ACCEPTED):
        return f"without the policy: {result.unpoliced} ({result.unpoliced_reason[:120]})"
    if result.next_honest not in (None, Status.ACCEPTED):
        return f"the honest kernel judged after it was {result.next_honest}"
    return ""


@dataclass(frozen=True)
class _Honest:
    task: str
    kernel: Kernel
    name: str


def _key(scorer: Scorer, work: Trick | _Honest) -> str:
    """Equal only where the judge, the machine, the task, the kernel and what is right for it are."""
    kernel = scorer.gallery.kernel(work, scorer.target) if isinstance(work, Trick) else work.kernel
    expected = (*work.statuses, work.modelled, str(work.crash)) if isinstance(work, Trick) else ()
    place = (scorer.place(work.task), ",".join(scorer.gate.interpreter.isolation), scorer.gallery.task(work.task).id)
    return content_hash(*place, type(work).__name__, work.name, kernel.source, *expected)


def _judged(scorer: Scorer, work: Trick | _Honest, file: ScoreFile | None) -> TrickResult | HonestResult:
    kind = TrickResult if isinstance(work, Trick) else HonestResult
    key = _key(scorer, work) if file is not None else ""
    if file is not None and (known := file.get(key)) is not None:
        result = kind.model_validate(known)
        final = result.status if isinstance(result, HonestResult) else result.unpoliced
        if final not in (Status.INFRA_ERROR, Status.INCONCLUSIVE):  # of the machine's state, not of the kernel
            return result
    hostile = isinstance(work, Trick)
    result = scorer.trick(work) if hostile else scorer.honest(work.task, work.kernel, work.name)
    if file is not None:
        file.add(key, "hostile" if hostile else "honest", result.model_dump(mode="json"))
    return result


def gate_score(
    scorer: Scorer,
    *,
    tricks: Sequence[Trick] | None = None,
    honest: bool = True,
    policy_only: Sequence[tuple[str, str]] = (),
    jobs: int = 2,
    progress: Progress | None = None,
    file: ScoreFile | None = None,
    seconds: float | None = None,
) -> GateScore:
    """Judge tricks (all when None) and honest kernels, ``jobs`` at once.

    ``policy_only``: (name, source) of expert kernels that the static policy alone must let pass. Results go to ``file``
    as they come, and what it holds of the same judge and kernel is not judged again. After ``seconds`` no kernel is
    begun.
    """
    until = None if seconds is None else time.monotonic() + seconds
    progress = progress or NullProgress()
    chosen = scorer.gallery.tricks if tricks is None else tricks
    work: list[Trick | _Honest] = list(_spread(chosen))
    if honest:
        work += [_Honest(*found) for found in scorer.honest_kernels()]

    def judge(job: Trick | _Honest) -> TrickResult | HonestResult | None:
        return _judged(scorer, job, file) if until is None or time.monotonic() < until else None

    results: list[TrickResult | HonestResult] = []
    progress.start("judging hostile and honest kernels", len(work))
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(judge, job) for job in work]
        try:
            for done in as_completed(waiting):
                if (result := done.result()) is not None:
                    results.append(result)
                    progress.step(result.name)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            scorer.close()  # those under way end with their workers
            raise
        finally:
            progress.done()
    left = len(work) - len(results)
    order = {t.name: i for i, t in enumerate(scorer.gallery.tricks)}
    judged = sorted((r for r in results if isinstance(r, TrickResult)), key=lambda r: order[r.name])
    passed = sorted((r for r in results if isinstance(r, HonestResult)), key=lambda r: r.name)
    passed += [_policed(name, source) for name, source in policy_only]
    return GateScore(
        target=scorer.target.name,
        mode=scorer.gate.mode,
        isolation=scorer.gate.interpreter.isolation,
        families=tuple(_family(f, judged) for f in dict.fromkeys(r.family for r in judged)),
        tricks=tuple(judged),
        honest=tuple(passed),
        left=left,
    )


def _spread(tricks: Sequence[Trick]) -> list[Trick]:
    """Those that may wait for a time limit first, so that none of them is last."""
    return sorted(tricks, key=lambda t: not t.crash)


def _policed(name: str, source: str) -> HonestResult:
    findings = check_policy(source)
    status = Status.REJECTED_POLICY if findings else Status.ACCEPTED
    return HonestResult(name=name, status=status, reason=str(findings[0]) if findings else "", policy_only=True)


def _family(family: str, results: Sequence[TrickResult]) -> FamilyScore:
    mine = [r for r in results if r.family == family]
    accepted = [r for r in mine if r.unpoliced is Status.ACCEPTED]
    return FamilyScore(
        family=family,
        planted=len(mine),
        killed=sum(r.status not in _NOT_REJECTED for r in mine),
        killed_unpoliced=sum(r.unpoliced not in _NOT_REJECTED for r in mine),
        no_effect=sum(bool(r.modelled) for r in accepted),
        layers=dict(Counter(str(r.layer) for r in mine if r.layer is not None)),
        unpoliced_layers=dict(Counter(str(r.unpoliced_layer) for r in mine if r.unpoliced_layer is not None)),
    )


def sampled(gallery: Gallery, families: Sequence[str] | None = None, most: int | None = None) -> list[Trick]:
    """The tricks of these families (all when None), at most so many of each, spread over it.

    Raises KLineageError for an unknown family.
    """
    if unknown := set(families or ()) - set(gallery.families):
        raise KLineageError(f"no family {sorted(unknown)[0]!r}", f"families: {', '.join(gallery.families)}")
    chosen: list[Trick] = []
    for family in families or gallery.families:
        mine = [t for t in gallery.tricks if t.family == family]
        count = min(len(mine), most or len(mine))
        chosen += [mine[i * len(mine) // count] for i in range(count)]
    return chosen
