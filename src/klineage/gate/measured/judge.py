"""The judge on a GPU: the same order of checks, with launches replayed and timed by the trusted worker."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

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
    measured,
)
from ...model.verdict import Layer
from ...task import Task
from ..compile import CompileOutcome, compile_kernel
from ..environment import measured_environment
from ..judge import LIMITS, Gate, Judgement, TaskGate
from ..policy import check_policy
from ..protocol import Profile, VerdictStore
from ..workers import Limits, Zygote, default_cache_dir
from . import stats
from .client import GpuWorker, WorkerLost

CHILD_JOB = "klineage.gate.measured.child:run_job"
SEES = (
    "Races are found only when two runs differ or a result is wrong.",
    "Writes outside a tensor are found within 64 KiB of it; reads outside are not found.",
)
_SLOWER = 1.01
_PROGRAMS = 64  # kernels whose captured launches are kept for races against later ones


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
    ) -> None:
        super().__init__(target, store, jobs, limits, cache_dir)
        self.worker = GpuWorker(cache_dir or default_cache_dir(), limits.wall_s)
        self._limits = limits
        self.closing.append(self.worker.close)
        reply = self.worker.ask({"do": "device", "cache_dir": str(self.worker.cache_dir)})
        self.facts: dict[str, Any] = reply["facts"]
        self.peaks: dict[str, float] = reply["peaks"]
        self._child: Zygote | None = None

    @property
    def child(self) -> Zygote:
        """Where candidates run whose launches cannot be captured; started when first needed."""
        if self._child is None:
            # CUDA maps far more addresses than it uses: no limit on them
            self._child = Zygote("plain", dataclasses.replace(self._limits, memory_bytes=None))
            self.closing.append(self._child.close)
        return self._child

    def bind(self, task: Task) -> MeasuredTaskGate:
        """The judge of one task."""
        return MeasuredTaskGate(self, task)


@dataclass
class _Captured:
    programs: dict[str, Any]
    cubins: dict[str, bytes]


@dataclass
class MeasuredTaskGate(TaskGate):
    """A measured gate bound to one task."""

    _captured: dict[str, _Captured] = field(default_factory=dict[str, "_Captured"])

    def __post_init__(self) -> None:
        self.salt = os.urandom(8).hex()
        super().__post_init__()
        assert isinstance(self.gate, MeasuredGate)
        self.device: MeasuredGate = self.gate
        self.environment: Environment = measured_environment(self.gate.target, self.device.facts)
        self.device.worker.ask({"do": "task", "task": self.task.id, "path": str(self.task.path), "salt": self.salt})

    def judge(self, kernel: Kernel, incumbent: Verdict | None = None) -> Verdict:
        """As without a GPU; against an accepted incumbent both are timed in turn, and the interval decides."""
        plain = self._plain(kernel)
        if incumbent is None or not plain.accepted or not incumbent.accepted or incumbent.kernel == kernel.id:
            return plain
        other = self.gate.store.get_kernel(incumbent.kernel)
        ratio = self._race(kernel, other) if other is not None else None
        if ratio is None:
            mine, its = plain.latency_us, incumbent.latency_us
            slower = mine is not None and its is not None and mine > its * _SLOWER
            reason = f"{mine:.4g} us against the incumbent's {its:.4g} us (measured)"
        else:
            slower = ratio.low > 1.0 and ratio.value > _SLOWER
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
        idle = next((c.name for c in (*checks, *bench) if not compiled.launches.get(c.name)), None)
        if idle is not None:
            reason = f"case {idle}: no kernel was launched: the answer was made without one"
            return Judgement(Status.REJECTED_HACK, reason, launches=launches, layer=Layer.WATCH)
        why = next((p["impossible"] for p in compiled.programs.values() if p["impossible"]), "")
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
        if reply.get("impossible"):
            return str(reply["impossible"])
        results = tuple(_result(r) for r in reply["results"])
        refused = next((r for r in reply["results"] if r["status"]), None)
        if refused is not None:
            reason = f"case {refused['case']}: {refused['reason']}"
            layer = Layer.COMPARISON if refused["status"] == "rejected_numeric" else Layer.WATCH
            return Judgement(Status(refused["status"]), reason, results, (), launches, layer=layer)
        self._keep(kernel, compiled)
        times: list[CaseTime] = []
        for case in bench:
            reply = self._ask_time(case, compiled.programs[case.name], compiled.cubins)
            if reply.get("impossible"):
                return str(reply["impossible"])
            if reply["complaint"]:
                failed = CaseResult(case=case.name, passed=False, reason=reply["complaint"])
                cases = (*results, failed)
                return Judgement(
                    Status.REJECTED_NUMERIC, reply["complaint"], cases, (), launches, layer=Layer.COMPARISON
                )
            found = self._case_time(case, reply)
            if isinstance(found, str):
                return Judgement(Status.INCONCLUSIVE, found, results, (), launches, layer=Layer.BENCH)
            times.append(found)
        return Judgement(Status.ACCEPTED, "", results, tuple(times), launches, unseen=SEES, launched_by="trusted")

    def _ask_time(self, case: Case, program: Any, cubins: dict[str, bytes], **other: Any) -> dict[str, Any]:
        request = {"do": "time", "task": self.task.id, "case": case.model_dump(mode="json"), "program": program}
        return self.device.worker.ask({**request, "cubins": cubins, **other})

    def _case_time(self, case: Case, reply: dict[str, Any]) -> CaseTime | str:
        """The case's time, or why it cannot be one."""
        work, peaks = self.task.work(case), self.device.peaks
        time_us, l2 = float(reply["us"]), float(self.device.facts["l2_bytes"])
        if stats.beyond_roofline(time_us, work.bytes, work.flops, l2, peaks["gbps"], peaks["fp16_tflops"]):
            return f"case {case.name}: {time_us:.4g} us is less than this device needs for the work: invalid, not fast"
        floor_us = max(work.bytes / peaks["gbps"] / 1e3, work.flops / peaks["fp16_tflops"] / 1e6)
        low, high = reply["interval"]
        return CaseTime(
            case=case.name,
            latency=measured(time_us, "us"),
            interval_us=(float(low), float(high)),
            vendor_us={str(k): float(v) for k, v in reply["vendors"].items()},
            roofline_us=floor_us,
        )

    def _race(self, kernel: Kernel, other: Kernel) -> stats.Interval | None:
        """Times of two kernels in turn, as a ratio over the bench cases; None where one cannot be replayed."""
        mine, its = self._captured_of(kernel), self._captured_of(other)
        if mine is None or its is None:
            return None
        found: list[stats.Interval] = []
        for case in self.info.with_role(CaseRole.BENCH):
            reply = self._ask_time(
                case, mine.programs[case.name], mine.cubins,
                incumbent=its.programs[case.name], incumbent_cubins=its.cubins, only_incumbent=True,
            )  # fmt: skip
            if reply.get("impossible") or reply["complaint"]:
                return None
            found.append(stats.Interval(reply["ratio"], *reply["ratio_interval"]))
        return stats.product(found)

    def _captured_of(self, kernel: Kernel) -> _Captured | None:
        if kernel.id not in self._captured:
            compiled = self._recorded(kernel, self.info.with_role(CaseRole.BENCH))
            if not compiled.ok or any(p["impossible"] for p in compiled.programs.values()):
                return None
            self._keep(kernel, compiled)
        return self._captured.get(kernel.id)

    def _keep(self, kernel: Kernel, compiled: CompileOutcome) -> None:
        while len(self._captured) >= _PROGRAMS:
            del self._captured[next(iter(self._captured))]
        self._captured[kernel.id] = _Captured(compiled.programs, compiled.cubins)

    def _in_child(
        self,
        kernel: Kernel,
        checks: Sequence[Case],
        bench: Sequence[Case],
        launches: tuple[LaunchReport, ...],
        why: str,
    ) -> Judgement:
        """Run the candidate itself, confined, where its launches cannot be replayed."""
        results: list[CaseResult] = []
        answers = self._ask_child(kernel, checks, timed=False)
        if isinstance(answers, Judgement):
            return answers
        for case, answer in zip(checks, answers, strict=True):
            refused = self._refuse_means(answer)
            if refused:
                failed = CaseResult(case=case.name, passed=False, reason=refused)
                cases = (*results, failed)
                return Judgement(
                    Status.REJECTED_HACK, f"case {case.name}: {refused}", cases, (), launches, layer=Layer.WATCH
                )
            judged = CaseResult(case=case.name, passed=False, reason="it gave no outputs")
            for outputs in answer["outputs"]:
                reply = self.device.worker.ask(
                    {"do": "outputs", "task": self.task.id, "case": case.model_dump(mode="json"), "outputs": outputs}
                )
                judged = _result(reply)
                if not judged.passed:
                    reason = f"case {case.name}: {judged.reason}"
                    cases = (*results, judged)
                    return Judgement(Status.REJECTED_NUMERIC, reason, cases, (), launches, layer=Layer.COMPARISON)
            results.append(judged)
        times: list[CaseTime] = []
        for case in bench:
            answers = self._ask_child(kernel, [case], timed=True)
            if isinstance(answers, Judgement):
                return answers
            interval = stats.time_interval(answers[0]["times"])
            request = {"do": "bench_outputs", "task": self.task.id, "case": case.model_dump(mode="json")}
            reply = self.device.worker.ask({**request, "outputs": answers[0]["outputs"][-1]})
            if reply["complaint"]:
                failed = CaseResult(case=case.name, passed=False, reason=reply["complaint"])
                cases = (*results, failed)
                return Judgement(
                    Status.REJECTED_NUMERIC, reply["complaint"], cases, (), launches, layer=Layer.COMPARISON
                )
            reply |= {"us": interval.value, "interval": [interval.low, interval.high]}
            found = self._case_time(case, reply)
            if isinstance(found, str):
                return Judgement(Status.INCONCLUSIVE, found, tuple(results), (), launches, layer=Layer.BENCH)
            times.append(found)
        unseen = (*SEES, f"Timed in a process that the candidate shares, since its launches cannot be captured: {why}.")
        return Judgement(
            Status.ACCEPTED, "", tuple(results), tuple(times), launches, unseen=unseen, launched_by="child"
        )

    def _ask_child(self, kernel: Kernel, cases: Sequence[Case], timed: bool) -> list[dict[str, Any]] | Judgement:
        asked = [{"inputs": list(self.task.make_inputs(c))} for c in cases]
        payload = {"source": kernel.source, "entry": kernel.entry, "cases": asked, "timed": timed}
        result = self.device.child.run(CHILD_JOB, payload)
        found = result.value.get("cases") if result.value is not None else None
        if isinstance(found, list):
            answers = cast(list[dict[str, Any]], found)
            if [sorted(a) for a in answers] == [["changed", "outputs", "times", "torch_ops"]] * len(cases):
                return answers
        status = Status.REJECTED_HACK if result.outcome in ("exited", "output_cap", "ok") else Status.REJECTED_NUMERIC
        reason = f"{result.outcome} in its own process: {result.error}".strip(": ")
        failed = CaseResult(case=cases[0].name, passed=False, reason=reason)
        return Judgement(status, f"case {cases[0].name}: {reason}", (failed,), layer=Layer.LIMITS)

    def _verdict(self, kernel: Kernel, judged: Judgement, cases: Sequence[Case], seconds: float) -> Verdict:
        plain = super()._verdict(kernel, judged, cases, seconds)
        return plain.model_copy(update={"blind_spots": judged.unseen, "launched_by": judged.launched_by})

    def _refuse_means(self, answer: dict[str, Any]) -> str:
        changed = [i for i in answer["changed"] if i not in self.info.in_place]
        if changed:
            return f"input {changed[0]} was modified and the task is not in place"
        return f"computes with torch: {', '.join(map(str, answer['torch_ops'][:3]))}" if answer["torch_ops"] else ""

    def _fresh_profile(self, kernel: Kernel, case: Case, target: Target) -> Profile:
        """Measured on this device's own target, modelled for others."""
        if target.name != self.gate.target.name:
            return super()._fresh_profile(kernel, case, target)
        compiled = self._recorded(kernel, [case])
        if not compiled.ok:
            return None, (), compiled.reason
        reports = tuple(compiled.launches[case.name])
        program = compiled.programs[case.name]
        if program["impossible"]:
            return None, reports, str(program["impossible"])
        try:
            reply = self._ask_time(case, program, compiled.cubins)
        except WorkerLost as error:
            return None, reports, str(error)
        why = reply.get("impossible") or reply["complaint"]
        found = why or self._case_time(case, reply)
        return (None, reports, found) if isinstance(found, str) else (found, reports, "")


def _result(reply: dict[str, Any]) -> CaseResult:
    return CaseResult(
        case=reply["case"],
        passed=reply["passed"],
        error=reply["error"],
        allowed=reply["allowed"],
        reason=reply["reason"],
    )
