"""The one judge: policy, compile, correctness, profile, in that order, giving a verdict that carries its evidence."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..model import (
    Case,
    CaseResult,
    CaseRole,
    CaseTime,
    Environment,
    Frozen,
    Kernel,
    LaunchReport,
    Provenance,
    Status,
    Target,
    TaskInfo,
    Traffic,
    Verdict,
    json_hash,
)
from ..model.verdict import Layer
from ..surface.query import normal
from ..task import Task
from .bench import missing_work
from .compile import CompileOutcome, compile_kernel
from .correctness import Correctness, agreeing, check_correctness
from .environment import modelled_environment
from .interpreter.blind_spots import blind_spots
from .policy import check_policy
from .profile import profile_case
from .protocol import Profile, VerdictStore
from .spot import SpotChecks, SpotResult
from .twins import size_of
from .workers import Limits, Zygote

SLOWER = 1.01  # slower than the incumbent by more than this is rejected_slow
MOST_CONFIGURATIONS = 16  # of an autotuned kernel that are checked, each on one case and its twin
_DECISIVE = {Layer.COMPARISON, Layer.WATCH, Layer.SANITIZER, Layer.AGREEMENT, Layer.LIMITS}  # found wrong by running
LIMITS = Limits(wall_s=120.0)


class _ProfileRecord(Frozen):
    """A profile as it is kept in the store."""

    time: CaseTime | None
    launches: tuple[LaunchReport, ...]
    reason: str

    def as_profile(self) -> Profile:
        """The value as the judge gives it."""
        return self.time, self.launches, self.reason


@dataclass(frozen=True)
class Judgement:
    """What a verdict says, before it is one."""

    status: Status
    reason: str = ""
    cases: tuple[CaseResult, ...] = ()
    times: tuple[CaseTime, ...] = ()
    launches: tuple[LaunchReport, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    layer: Layer | None = None
    unseen: tuple[str, ...] = ()
    launched_by: str = ""


def _both(first: Correctness, second: Correctness) -> Correctness:
    """The first result when the second agrees with it, else the second."""
    return first if second.status is None else second


def _failed_bench(
    case: Case, reason: str, correctness: Correctness, launches: tuple[LaunchReport, ...], layer: Layer
) -> Judgement:
    failed = CaseResult(case=case.name, passed=False, reason=reason)
    reason = f"case {case.name}: {reason}"
    return Judgement(Status.REJECTED_NUMERIC, reason, (*correctness.cases, failed), (), launches, layer=layer)


class Gate:
    """The judge for one target without a GPU. Starts one warm worker server per flavour; close it when done."""

    mode = Provenance.MODELLED

    def __init__(
        self,
        target: Target,
        store: VerdictStore,
        jobs: int = 2,
        limits: Limits = LIMITS,
        cache_dir: Path | None = None,
    ) -> None:
        self.target = target
        self.store = store
        self.jobs = max(1, jobs)
        self.pool = ThreadPoolExecutor(max(2, jobs), thread_name_prefix="gate")
        self.closing: list[Callable[[], None]] = []  # what to do when this gate is closed
        starting = self.pool.submit(Zygote, "interpret", limits, cache_dir)
        self.compiler = Zygote("compile", limits, cache_dir)
        self.interpreter = starting.result()

    def bind(self, task: Task) -> TaskGate:
        """The judge of one task."""
        return TaskGate(self, task)

    def close(self) -> None:
        """Stop the workers."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.compiler.close()
        self.interpreter.close()
        for close in self.closing:
            close()


@dataclass
class TaskGate:
    """A gate bound to one task: implements ``klineage.gate.protocol.Judge``."""

    gate: Gate
    task: Task
    _by_text: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    _profiles: dict[tuple[str, str, str], Profile] = field(default_factory=dict[tuple[str, str, str], Profile])

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self.task = self.task.salted(os.urandom(8).hex())
        self.environment: Environment = modelled_environment(self.gate.target)
        self._spots = SpotChecks(self.task)
        self.gate.closing.append(self._spots.close)

    @property
    def info(self) -> TaskInfo:
        """The task."""
        return self.task.info

    @property
    def target(self) -> Target:
        """The architecture judged for."""
        return self.gate.target

    @property
    def mode(self) -> Provenance:
        """Always modelled here."""
        return self.gate.mode

    def judge(self, kernel: Kernel, incumbent: Verdict | None = None) -> Verdict:
        """The verdict of a kernel; the store's when it was reached before with the same toolchain.

        Kernels that differ only in comments or formatting share the judgement. With an accepted ``incumbent``, a
        correct kernel more than 1% slower is ``rejected_slow``.
        """
        plain = self._plain(kernel)
        if incumbent is None:
            return plain
        compared = against(plain, incumbent)
        if compared is not plain:
            self.gate.store.put_verdict(compared)
        return compared

    def judge_many(self, kernels: Sequence[Kernel]) -> list[Verdict]:
        """Verdicts of several kernels, judged side by side."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(self.judge, kernels))

    def check(self, kernel: Kernel, cases: Sequence[Case]) -> Verdict:
        """Compile and check correctness on the cases given; never cached, since the cases are not the task's."""
        started = time.monotonic()
        judgement = self._judgement(kernel, tuple(cases))
        verdict = self._verdict(kernel, judgement, tuple(cases), time.monotonic() - started)
        self.gate.store.put_kernel(kernel)
        self.gate.store.put_verdict(verdict)
        return verdict

    def examine(self, kernel: Kernel, *, policed: bool = True, brief: bool = False) -> Verdict:
        """A fresh judgement that is neither looked up nor kept; ``policed=False`` leaves the static policy out, to
        show what the rest of the gate makes of a kernel.

        ``brief`` (without a GPU) runs before it compiles, and does not compile what is found wrong: a kernel that
        fails in both ways is then rejected for its run.
        """
        started = time.monotonic()
        checks = self.info.with_role(CaseRole.CHECK)
        judgement = self._found_wrong(kernel, checks) if brief and "autotune" not in kernel.source else None
        judgement = judgement or self._judgement(kernel, checks, policed)
        return self._verdict(kernel, judgement, self.info.cases, time.monotonic() - started)

    def profile(self, kernel: Kernel, cases: Sequence[Case], target: Target | None = None) -> list[Profile]:
        """(time, launches, reason when there is no time) per case, for any target; no correctness."""
        return [self._profile(kernel, case, target or self.target) for case in cases]

    # ------------------------------------------------------------------ parts
    def _plain(self, kernel: Kernel) -> Verdict:
        text = f"{kernel.entry}\n{normal(kernel.source)}"
        with self._once(text):
            return self._judged_once(kernel, text)

    def _once(self, *key: str) -> threading.Lock:
        """The lock of one piece of work, so that two threads that want it do it once."""
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())

    def _judged_once(self, kernel: Kernel, text: str) -> Verdict:
        known = self._by_text.get(text) or self.gate.store.find_verdict(
            self.task.id, kernel.id, self.environment.fingerprint
        )
        if known is None:
            started = time.monotonic()
            judgement = self._judgement(kernel, self.info.with_role(CaseRole.CHECK))
            known = self._verdict(kernel, judgement, self.info.cases, time.monotonic() - started)
            self.gate.store.put_kernel(kernel)
            self.gate.store.put_verdict(known)
        elif known.kernel != kernel.id:
            known = known.model_copy(update={"kernel": kernel.id})
            self.gate.store.put_kernel(kernel)
            self.gate.store.put_verdict(known)
        if known.status is not Status.INFRA_ERROR:
            self._by_text[text] = known
        return known

    def _judgement(self, kernel: Kernel, checks: Sequence[Case], policed: bool = True) -> Judgement:
        findings = check_policy(kernel.source) if policed else []
        if findings:
            reason = "; ".join(str(f) for f in findings[:3])
            return Judgement(Status.REJECTED_POLICY, reason, layer=Layer.POLICY)
        bench = self.info.with_role(CaseRole.BENCH)
        for case in bench:
            self.gate.pool.submit(self._spots.prepare, case)
        tuned = "autotune" in kernel.source  # then what is checked must be the configurations that are timed
        checking = None if tuned else self.gate.pool.submit(self._correctness, kernel, checks)
        compiled = self._compile(kernel, [*checks, *bench], self.target)
        if not compiled.ok:
            if checking is not None:
                checking.cancel()
            return Judgement(Status.REJECTED_COMPILE, compiled.reason, layer=Layer.COMPILE)
        correctness = checking.result() if checking else self._tuned_correctness(kernel, checks, bench, compiled)
        launches = tuple(report for case in bench for report in compiled.launches.get(case.name, []))
        if correctness.status is None:
            correctness = agreeing(correctness, compiled.launches)
        if correctness.status is not None:
            return Judgement(
                correctness.status, correctness.reason, correctness.cases, (), launches, layer=correctness.layer
            )
        return self._timed(kernel, bench, compiled, correctness, launches)

    def _found_wrong(self, kernel: Kernel, checks: Sequence[Case]) -> Judgement | None:
        """A rejection for what the kernel did when it ran, or None."""
        found = self._correctness(kernel, checks)
        if found.status is None or found.layer not in _DECISIVE:
            return None
        return Judgement(found.status, found.reason, found.cases, layer=found.layer)

    def _tuned_correctness(
        self, kernel: Kernel, checks: Sequence[Case], bench: Sequence[Case], compiled: CompileOutcome
    ) -> Correctness:
        """Check an autotuned kernel under the configurations it was compiled with, those of the bench shapes too."""
        own = {c.name: [r.config for r in compiled.launches[c.name]] for c in checks}
        found = self._correctness(kernel, checks, own)
        timed = [[r.config for r in compiled.launches[c.name]] for c in bench]
        for configs in timed:
            fitting = {name: configs for name, mine in own.items() if len(mine) == len(configs) and mine != configs}
            if found.status is not None or not fitting:
                continue
            found = _both(found, self._correctness(kernel, [c for c in checks if c.name in fitting], fitting))
        large = sorted(checks, key=lambda c: size_of(self.task, c))[-1:]  # where tiles of every size are filled
        for index in range(min(found.configurations, MOST_CONFIGURATIONS)):
            if found.status is None:  # a GPU may choose any of them
                found = _both(found, self._correctness(kernel, large, None, index))
        return found

    def _timed(
        self,
        kernel: Kernel,
        bench: Sequence[Case],
        compiled: CompileOutcome,
        correctness: Correctness,
        launches: tuple[LaunchReport, ...],
    ) -> Judgement:
        times: list[CaseTime] = []
        traffic: list[Traffic] = []
        unseen: list[str] = []
        spots = [self._spot(kernel, case, compiled.launches[case.name]) for case in bench]
        for case, spot in zip(bench, spots, strict=True):
            profiled = profile_case(
                self.gate.interpreter, self.task, kernel, case, compiled.launches[case.name], self.target
            )
            if profiled.fault:
                return _failed_bench(case, profiled.reason, correctness, launches, Layer.SANITIZER)
            if profiled.disagrees:
                reason = f"case {case.name}: {profiled.reason}"
                return Judgement(Status.REJECTED_HACK, reason, correctness.cases, (), launches, layer=Layer.AGREEMENT)
            if profiled.time is None:
                return Judgement(
                    Status.INCONCLUSIVE, profiled.reason, correctness.cases, (), launches, layer=Layer.BENCH
                )
            missing = missing_work(self.task, case, profiled)
            if missing:
                reason = f"case {case.name}: {missing}"
                return Judgement(Status.REJECTED_HACK, reason, correctness.cases, (), launches, layer=Layer.BENCH)
            seen = spot.result()
            if seen.reason:
                return _failed_bench(case, seen.reason, correctness, launches, Layer.BENCH)
            unseen += [seen.unseen] if seen.unseen else []
            times.append(profiled.time)
            traffic += profiled.traffic
            self._profiles[kernel.id, case.name, self.target.name] = (
                profiled.time,
                tuple(compiled.launches[case.name]),
                "",
            )
        return Judgement(
            Status.ACCEPTED, "", correctness.cases, tuple(times), launches, tuple(traffic), unseen=tuple(unseen)
        )

    def _spot(self, kernel: Kernel, case: Case, reports: Sequence[LaunchReport]) -> Future[SpotResult]:
        """Values of a few programs at the bench shape, found beside the profile."""
        return self.gate.pool.submit(self._spots.check, self.gate.interpreter, kernel, case, self.target, reports)

    def _profile(self, kernel: Kernel, case: Case, target: Target) -> Profile:
        key = (kernel.id, case.name, target.name)
        with self._once(*key):
            if key not in self._profiles:
                self._profiles[key] = self._stored_profile(kernel, case, target)
            return self._profiles[key]

    def _stored_profile(self, kernel: Kernel, case: Case, target: Target) -> Profile:
        """A profile from the store when the same one was made before, so that stopped probing resumes."""
        key = f"profile/{self.task.id}/{kernel.id}/{json_hash(case.model_dump(mode='json'))}/{target.name}/"
        key += self.environment.fingerprint
        kept = self.gate.store.checkpoint(key)
        if kept is not None:
            return _ProfileRecord.model_validate(kept).as_profile()
        found = self._fresh_profile(kernel, case, target)
        record = _ProfileRecord(time=found[0], launches=found[1], reason=found[2])
        self.gate.store.set_checkpoint(key, record.model_dump(mode="json"))
        return found

    def _fresh_profile(self, kernel: Kernel, case: Case, target: Target) -> Profile:
        compiled = self._compile(kernel, [case], target)
        if not compiled.ok:
            return None, (), compiled.reason
        reports = compiled.launches[case.name]
        profiled = profile_case(self.gate.interpreter, self.task, kernel, case, reports, target)
        return profiled.time, tuple(reports), profiled.reason

    def _compile(self, kernel: Kernel, cases: Sequence[Case], target: Target) -> CompileOutcome:
        specs = [(case.name, self.task.input_specs(case)) for case in cases]
        timed = {case.name for case in cases if case.role is not CaseRole.CHECK}
        return compile_kernel(self.gate.compiler, kernel, specs, target, jobs=self.gate.jobs, disassemble=timed)

    def _correctness(
        self,
        kernel: Kernel,
        checks: Sequence[Case],
        configs: Mapping[str, Sequence[str | None]] | None = None,
        config_index: int = 0,
    ) -> Correctness:
        return check_correctness(self.gate.interpreter, self.task, kernel, checks, self.target, configs, config_index)

    def _verdict(self, kernel: Kernel, judged: Judgement, cases: Sequence[Case], seconds: float) -> Verdict:
        return Verdict(
            task=self.info.name,
            task_id=self.task.id,
            kernel=kernel.id,
            status=judged.status,
            reason=judged.reason,
            cases=judged.cases,
            times=judged.times,
            launches=judged.launches,
            traffic=judged.traffic,
            blind_spots=(*blind_spots(kernel.source, judged.launches), *judged.unseen),
            seeds=tuple(c.seed for c in cases),
            layer=judged.layer,
            environment=self.environment,
            judge_s=seconds,
        )


def against(verdict: Verdict, incumbent: Verdict) -> Verdict:
    """The verdict as it stands against an incumbent: ``rejected_slow`` when more than 1% slower than it."""
    mine, other = verdict.latency_us, incumbent.latency_us
    if not verdict.accepted or mine is None or other is None or mine <= other * SLOWER:
        return verdict
    reason = f"{mine:.4g} us against the incumbent's {other:.4g} us ({verdict.mode})"
    return verdict.model_copy(update={"status": Status.REJECTED_SLOW, "reason": reason, "incumbent": incumbent.kernel})
