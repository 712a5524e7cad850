"""Candidates whose launches cannot be replayed: they run on the GPU themselves, confined, one process a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ...model import Case, CaseResult, Kernel, LaunchReport, Status
from ...model.verdict import Layer
from ...task import Task
from ..judge import Judgement
from ..workers import Zygote
from . import stats
from .client import GpuWorker, lease

CHILD_JOB = "klineage.gate.measured.child:run_job"
_ANSWER = ["changed", "outputs", "times", "torch_ops"]


@dataclass(frozen=True)
class Isolated:
    """Runs candidates of one task in ``child`` and has ``worker`` compare what they answer."""

    task: Task
    child: Zygote
    worker: GpuWorker

    def check(
        self, kernel: Kernel, checks: Sequence[Case], launches: tuple[LaunchReport, ...]
    ) -> Judgement | tuple[CaseResult, ...]:
        """Results of every case, twice, when all passed; else the refusal."""
        answers = self._ask(kernel, checks, timed=False)
        if isinstance(answers, Judgement):
            return answers
        results: list[CaseResult] = []
        for case, answer in zip(checks, answers, strict=True):
            if why := self._refuse_means(answer):
                return _refused(Status.REJECTED_HACK, Layer.WATCH, case, why, results, launches)
            judged = CaseResult(case=case.name, passed=False, reason="it gave no outputs")
            for outputs in answer["outputs"]:
                request = {"do": "outputs", "task": self.task.id, "case": case.model_dump(mode="json")}
                judged = result_of(self.worker.ask({**request, "outputs": outputs}))
                if not judged.passed:
                    break
            if not judged.passed:
                return _refused(Status.REJECTED_NUMERIC, Layer.COMPARISON, case, judged.reason, results, launches)
            results.append(judged)
        return tuple(results)

    def time(
        self, kernel: Kernel, case: Case, results: Sequence[CaseResult], launches: tuple[LaunchReport, ...]
    ) -> Judgement | dict[str, Any]:
        """The reply of the worker's look at a bench case, with the times the child took; or the refusal."""
        self.worker.ask({"do": "release"})
        with lease():
            answers = self._ask(kernel, [case], timed=True)
        if isinstance(answers, Judgement):
            return answers
        times = answers[0]["times"]
        if not times or not all(isinstance(t, float) and t > 0 for t in times) or not answers[0]["outputs"]:
            why = "it gave no times or no outputs"
            return _refused(Status.REJECTED_HACK, Layer.WATCH, case, why, list(results), launches)
        interval = stats.time_interval(times)
        request = {"do": "bench_outputs", "task": self.task.id, "case": case.model_dump(mode="json")}
        reply = self.worker.ask({**request, "outputs": answers[0]["outputs"][-1]})
        if reply["complaint"]:
            why = str(reply["complaint"])
            return _refused(Status.REJECTED_NUMERIC, Layer.COMPARISON, case, why, list(results), launches)
        return reply | {"us": interval.value, "interval": [interval.low, interval.high]}

    def _ask(self, kernel: Kernel, cases: Sequence[Case], timed: bool) -> list[dict[str, Any]] | Judgement:
        asked = [{"inputs": list(self.task.make_inputs(c))} for c in cases]
        payload = {"source": kernel.source, "entry": kernel.entry, "cases": asked, "timed": timed}
        result = self.child.run(CHILD_JOB, payload)
        found = result.value.get("cases") if result.value is not None else None
        if isinstance(found, list):
            answers = cast(list[dict[str, Any]], found)
            whole = all(isinstance(a, dict) and sorted(a) == _ANSWER for a in answers)  # pyright: ignore[reportUnnecessaryIsInstance]
            if whole and len(answers) == len(cases):
                return answers
        status = Status.REJECTED_HACK if result.outcome in ("exited", "output_cap", "ok") else Status.REJECTED_NUMERIC
        reason = f"{result.outcome} in its own process: {result.error}".strip(": ")
        return _refused(status, Layer.LIMITS, cases[0], reason, [], ())

    def _refuse_means(self, answer: dict[str, Any]) -> str:
        changed = [i for i in answer["changed"] if i not in self.task.info.in_place]
        if changed:
            return f"input {changed[0]} was modified and the task is not in place"
        return f"computes with torch: {', '.join(map(str, answer['torch_ops'][:3]))}" if answer["torch_ops"] else ""


def result_of(reply: dict[str, Any]) -> CaseResult:
    """A case's result as the worker tells it."""
    return CaseResult.model_validate({name: reply[name] for name in ("case", "passed", "error", "allowed", "reason")})


def _refused(
    status: Status,
    layer: Layer,
    case: Case,
    reason: str,
    results: Sequence[CaseResult],
    launches: tuple[LaunchReport, ...],
) -> Judgement:
    failed = CaseResult(case=case.name, passed=False, reason=reason)
    told = reason if reason.startswith("case ") else f"case {case.name}: {reason}"
    return Judgement(status, told, (*results, failed), (), launches, layer=layer)
