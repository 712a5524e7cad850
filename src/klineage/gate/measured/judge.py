"""The judge on a GPU: the same order of checks, with launches replayed and timed by the trusted worker."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model import (
    Case,
    CaseResult,
    CaseRole,
    CaseTime,
    Environment,
    Kernel,
    LaunchReport,
    Provenance,
    Status,
    Target,
    Verdict,
)
from ...model.verdict import Layer
from ...task import Task
from ..compile import CompileOutcome, compile_kernel
from ..environment import measured_environment
from ..judge import LIMITS, SLOWER, Gate, Judgement, TaskGate
from ..policy import check_policy
from ..protocol import Profile, VerdictStore
from ..workers import Limits, Zygote, default_cache_dir
from . import stats
from .captures import Captures
from .client import GpuWorker, WorkerLost
from .figures import case_time
from .isolated import Isolated, result_of
from .program import problem

SEES = (
    "Races are found only when two runs differ or a result is wrong.",
    "Writes outside a tensor are found within 64 KiB of it; reads outside are not found.",
)
TUNED = "Of an autotuned kernel's configurations, the one timed is what the compiler's own figures rank first."


class MeasuredGate(Gate):
    """The judge on this machine's GPU. Other targets than its own are modelled as without a GPU."""

    mode = Provenance.MEASURED

    def __init__(
        self,
        target: Target,
        store: VerdictStore,
        jobs: int = 2,
        limits: Limits = LIMITS,
        cache_dir: Path | None = None,
        worker: GpuWorker | None = None,
    ) -> None:
        super().__init__(target, store, jobs, limits, cache_dir)
        self.worker = worker or GpuWorker(cache_dir or default_cache_dir(), limits.wall_s)
        self._limits = limits
        self.closing.append(self.worker.close)
        try:
            reply = self.worker.ask({"do": "device", "cache_dir": str(self.worker.cache_dir)})
        except BaseException:
            self.close()
            raise
        self.facts: dict[str, Any] = reply["facts"]
        self.peaks: dict[str, float] = reply["peaks"]
        self._child: Zygote | None = None

    @property
    def child(self) -> Zygote:
        """Where candidates run whose launches cannot be captured; started when first needed."""
        if self._child is None:
            # CUDA maps far more addresses than it uses: no limit on them, but on the memory in use
            self._child = Zygote("plain", dataclasses.replace(self._limits, memory_bytes=None))
            self.closing.append(self._child.close)
        return self._child

    def bind(self, task: Task) -> MeasuredTaskGate:
        """The judge of one task."""
        return MeasuredTaskGate(self, task)


@dataclass
class MeasuredTaskGate(TaskGate):
    """A measured gate bound to one task."""

    def __post_init__(self) -> None:
        self.salt = os.urandom(8).hex()
        super().__post_init__()
        assert isinstance(self.gate, MeasuredGate)
        self.device: MeasuredGate = self.gate
        bench = [c.name for c in self.info.with_role(CaseRole.BENCH)]
        self.captures = Captures(bench, self._replayable)
        self.environment: Environment = measured_environment(self.gate.target, self.device.facts)
        self.device.worker.ask({"do": "task", "task": self.task.id, "path": str(self.task.path), "salt": self.salt})

    def judge(self, kernel: Kernel, incumbent: Verdict | None = None) -> Verdict:
        """As without a GPU; against an accepted incumbent both are timed in turn, and the interval decides."""
        plain = self._plain(kernel)
        if incumbent is None or not plain.accepted or not incumbent.accepted or incumbent.kernel == kernel.id:
            return plain
        other = self.gate.store.get_kernel(incumbent.kernel)
        ratio = self.race(kernel, other) if other is not None else None
        if ratio is None:
            mine, its = plain.latency_us, incumbent.latency_us
            slower = mine is not None and its is not None and mine > its * SLOWER
            reason = f"{mine:.4g} us against the incumbent's {its:.4g} us (measured)"
        else:
            slower = ratio.low > 1.0 and ratio.value > SLOWER
            reason = f"{ratio.value:.3f} of the incumbent's time, 95% {ratio.low:.3f} to {ratio.high:.3f} (measured)"
        if not slower:
            return plain
        update = {"status": Status.REJECTED_SLOW, "reason": reason, "incumbent": incumbent.kernel}
        verdict = plain.model_copy(update=update)
        self.gate.store.put_verdict(verdict)
        return verdict

    def judge_many(self, kernels: Sequence[Kernel]) -> list[Verdict]:
        """Verdicts of several kernels: compiled side by side, on the GPU one at a time."""
        return list(self.gate.pool.map(self.judge, kernels))

    def race(self, kernel: Kernel, other: Kernel) -> stats.Interval | None:
        """Times of two kernels in turn, as a ratio over the bench cases; 1 when they run the same instructions, None
        where one cannot be replayed."""
        mine, its = self.captures.of(kernel), self.captures.of(other)
        if mine is None or its is None:
            return None
        if mine.signature == its.signature:
            return stats.Interval(1.0, 1.0, 1.0)
        found: list[stats.Interval] = []
        for case in self.info.with_role(CaseRole.BENCH):
            reply = self._ask_time(
                case, mine.programs[case.name], mine.cubins,
                incumbent=its.programs[case.name], incumbent_cubins=its.cubins, only_incumbent=True,
            )  # fmt: skip
            if reply.get("impossible") or reply.get("refused") or reply["complaint"]:
                return None
            found.append(stats.Interval(reply["ratio"], *reply["ratio_interval"]))
        return stats.product(found)

    # ------------------------------------------------------------------ parts
    def _judgement(self, kernel: Kernel, checks: Sequence[Case], policed: bool = True) -> Judgement:
        findings = check_policy(kernel.source) if policed else []
        if findings:
            return Judgement(Status.REJECTED_POLICY, "; ".join(str(f) for f in findings[:3]), layer=Layer.POLICY)
        bench = self.info.with_role(CaseRole.BENCH)
        compiled = self._recorded(kernel, [*checks, *bench])
        if not compiled.ok:
            return Judgement(Status.REJECTED_COMPILE, compiled.reason, layer=Layer.COMPILE)
        launches = tuple(report for case in bench for report in compiled.launches.get(case.name, []))
        if why := self._not_in_order(compiled, [*checks, *bench]):
            return Judgement(Status.REJECTED_HACK, why, launches=launches, layer=Layer.WATCH)
        why = next((str(p["impossible"]) for p in compiled.programs.values() if p["impossible"]), "")
        try:
            if not why:
                judged = self._trusted(kernel, checks, bench, compiled, launches)
                if isinstance(judged, Judgement):
                    return judged
                why = judged
            return self._in_child(kernel, checks, bench, launches, why)
        except WorkerLost as error:
            failed = CaseResult(case=checks[0].name if checks else bench[0].name, passed=False, reason=str(error))
            reason = f"its launches took the GPU down: {error}"
            return Judgement(Status.REJECTED_NUMERIC, reason, (failed,), (), launches, layer=Layer.LIMITS)

    def _not_in_order(self, compiled: CompileOutcome, cases: Sequence[Case]) -> str:
        """Why what was written down of the launches cannot be used at all, or ""."""
        for case in cases:
            if not compiled.launches.get(case.name):
                return f"case {case.name}: no kernel was launched: the answer was made without one"
            count = len(self.task.input_specs(case))
            if why := problem(compiled.programs.get(case.name), compiled.cubins, count):
                return f"case {case.name}: forged its record of launches: {why}"
        return ""

    def _recorded(self, kernel: Kernel, cases: Sequence[Case]) -> CompileOutcome:
        specs = [(case.name, self.task.input_specs(case)) for case in cases]
        timed = {case.name for case in cases if case.role is CaseRole.BENCH}
        return compile_kernel(
            self.gate.compiler, kernel, specs, self.gate.target,
            jobs=self.gate.jobs, record=True, disassemble=timed,
        )  # fmt: skip

    def _trusted(
        self,
        kernel: Kernel,
        checks: Sequence[Case],
        bench: Sequence[Case],
        compiled: CompileOutcome,
        launches: tuple[LaunchReport, ...],
    ) -> Judgement | str:
        """The judgement by replay, or why there can be none."""
        asked = [{"case": c.model_dump(mode="json"), "program": compiled.programs[c.name]} for c in checks]
        reply = self.device.worker.ask({"do": "check", "task": self.task.id, "cases": asked, "cubins": compiled.cubins})
        if (other := _otherwise(reply, launches)) is not None:
            return other
        results = tuple(result_of(r) for r in reply["results"])
        refused = next((r for r in reply["results"] if r["status"]), None)
        if refused is not None:
            reason = f"case {refused['case']}: {refused['reason']}"
            layer = Layer.COMPARISON if refused["status"] == "rejected_numeric" else Layer.WATCH
            return Judgement(Status(refused["status"]), reason, results, (), launches, layer=layer)
        self.captures.keep(kernel, compiled)
        times: list[CaseTime] = []
        for case in bench:
            reply = self._ask_time(case, compiled.programs[case.name], compiled.cubins)
            if (other := _otherwise(reply, launches)) is not None:
                return other
            if why := reply["complaint"]:
                cases = (*results, CaseResult(case=case.name, passed=False, reason=why))
                return Judgement(Status.REJECTED_NUMERIC, why, cases, (), launches, layer=Layer.COMPARISON)
            found = self._case_time(case, reply)
            if isinstance(found, str):
                return Judgement(Status.INCONCLUSIVE, found, results, (), launches, layer=Layer.BENCH)
            times.append(found)
            key = (kernel.id, case.name, self.target.name)
            self._profiles[key] = (found, tuple(compiled.launches[case.name]), "")
        unseen = (*SEES, TUNED) if any(r.config for r in launches) else SEES
        return Judgement(Status.ACCEPTED, "", results, tuple(times), launches, unseen=unseen, launched_by="trusted")

    def _in_child(
        self,
        kernel: Kernel,
        checks: Sequence[Case],
        bench: Sequence[Case],
        launches: tuple[LaunchReport, ...],
        why: str,
    ) -> Judgement:
        """Run the candidate itself, confined, where its launches cannot be replayed."""
        if not {"pid", "seccomp"} & set(self.device.child.isolation):
            # as root it could end every process of the machine
            reason = f"its launches cannot be replayed ({why}), and this machine confines no process: see SECURITY.md"
            return Judgement(Status.INCONCLUSIVE, reason, launches=launches, layer=Layer.LIMITS)
        isolated = Isolated(self.task, self.device.child, self.device.worker)
        results = isolated.check(kernel, checks, launches)
        if isinstance(results, Judgement):
            return results
        times: list[CaseTime] = []
        for case in bench:
            reply = isolated.time(kernel, case, results, launches)
            if isinstance(reply, Judgement):
                return reply
            found = self._case_time(case, reply)
            if isinstance(found, str):
                return Judgement(Status.INCONCLUSIVE, found, results, (), launches, layer=Layer.BENCH)
            times.append(found)
        unseen = (*SEES, f"Timed in a process that the candidate shares, since its launches cannot be captured: {why}.")
        return Judgement(Status.ACCEPTED, "", results, tuple(times), launches, unseen=unseen, launched_by="child")

    def _ask_time(self, case: Case, program: Any, cubins: dict[str, bytes], **other: Any) -> dict[str, Any]:
        request = {"do": "time", "task": self.task.id, "case": case.model_dump(mode="json"), "program": program}
        return self.device.worker.ask({**request, "cubins": cubins, **other})

    def _case_time(self, case: Case, reply: dict[str, Any]) -> CaseTime | str:
        bounded = self.task.definition.work is not None
        return case_time(case, reply, self.task.work(case), bounded, self.device.facts, self.device.peaks)

    def _replayable(self, kernel: Kernel) -> CompileOutcome | None:
        """The launches of the bench cases, or None where they cannot be replayed."""
        bench = self.info.with_role(CaseRole.BENCH)
        compiled = self._recorded(kernel, bench)
        fit = compiled.ok and not self._not_in_order(compiled, bench)
        return compiled if fit and not any(p["impossible"] for p in compiled.programs.values()) else None

    def _verdict(self, kernel: Kernel, judged: Judgement, cases: Sequence[Case], seconds: float) -> Verdict:
        plain = super()._verdict(kernel, judged, cases, seconds)
        return plain.model_copy(update={"blind_spots": judged.unseen, "launched_by": judged.launched_by})

    def _fresh_profile(self, kernel: Kernel, case: Case, target: Target) -> Profile:
        """Measured on this device's own target, modelled for others."""
        if target.name != self.gate.target.name:
            return super()._fresh_profile(kernel, case, target)
        compiled = self._recorded(kernel, [case])
        if not compiled.ok:
            return None, (), compiled.reason
        reports = tuple(compiled.launches.get(case.name, ()))
        if why := self._not_in_order(compiled, [case]):
            return None, reports, why
        program = compiled.programs[case.name]
        if program["impossible"]:
            return None, reports, str(program["impossible"])
        try:
            reply = self._ask_time(case, program, compiled.cubins)
        except WorkerLost as error:
            return None, reports, str(error)
        why = str(reply.get("impossible") or reply.get("refused") or reply["complaint"])
        found = why or self._case_time(case, reply)
        return (None, reports, found) if isinstance(found, str) else (found, reports, "")


def _otherwise(reply: dict[str, Any], launches: tuple[LaunchReport, ...]) -> Judgement | str | None:
    """Why a replay is impossible, the verdict when the driver refuses a launch, or None when it went well."""
    if reply.get("refused"):
        return Judgement(Status.REJECTED_COMPILE, str(reply["refused"]), launches=launches, layer=Layer.COMPILE)
    return str(reply["impossible"]) if reply.get("impossible") else None
