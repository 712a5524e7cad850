"""Correctness: the candidate runs in a confined child under the interpreter; the parent compares with the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..model import Case, CaseResult, Kernel, Status, Target
from ..task import Task, compare
from .workers import JobResult, Zygote

RUN_JOB = "klineage.gate.interpreter.jobs:run_job"
_OUTCOMES = {
    "ok": (Status.INFRA_ERROR, "gave no answer"),
    "timeout": (Status.REJECTED_NUMERIC, "timed out"),
    "exited": (Status.REJECTED_HACK, "ended its process instead of answering"),
    "output_cap": (Status.REJECTED_HACK, "flooded its output"),
    "killed": (Status.REJECTED_NUMERIC, "crashed its process"),
    "error": (Status.INFRA_ERROR, "the job itself failed"),  # the job catches what a candidate raises
}


@dataclass(frozen=True)
class Correctness:
    """Results by case; ``status`` is None when every case passed."""

    status: Status | None
    reason: str
    cases: tuple[CaseResult, ...]


def check_correctness(worker: Zygote, task: Task, kernel: Kernel, cases: Sequence[Case], target: Target) -> Correctness:
    """Run every case in one child and compare. Expected values never leave the parent."""
    payload = {
        "source": kernel.source,
        "entry": kernel.entry,
        "target": target.name,
        "cases": [{"name": c.name, "inputs": list(task.make_inputs(c))} for c in cases],
    }
    result = worker.run(RUN_JOB, payload)
    if result.value is None:
        return _failed_job(result, cases)
    found = result.value.get("cases")
    answers: list[Mapping[str, Any]] = cast(list[Mapping[str, Any]], found) if isinstance(found, list) else []
    if len(answers) != len(cases):
        return _all_failed(Status.REJECTED_HACK, "answered for other cases than those asked", cases)
    results: list[CaseResult] = []
    for case, answer in zip(cases, answers, strict=True):
        status, judged = _judge_case(task, case, answer)
        results.append(judged)
        if status is not None:
            return Correctness(status, f"case {case.name}: {judged.reason}", tuple(results))
    return Correctness(None, "", tuple(results))


def _judge_case(task: Task, case: Case, answer: Mapping[str, Any]) -> tuple[Status | None, CaseResult]:
    def failed(status: Status, reason: str) -> tuple[Status, CaseResult]:
        return status, CaseResult(case=case.name, passed=False, reason=reason)

    error = answer.get("error")
    if error:
        return failed(Status.REJECTED_NUMERIC, str(error))
    if not answer.get("launches"):
        return failed(Status.REJECTED_HACK, "no kernel was launched: the answer was made without one")
    changed = [i for i in answer.get("modified", ()) if i not in task.info.in_place]
    if changed:
        return failed(Status.REJECTED_HACK, f"input {changed[0]} was modified and the task is not in place")
    aliased = [pair for pair in answer.get("aliases", ()) if pair[1] not in task.info.in_place]
    if aliased:
        return failed(Status.REJECTED_HACK, f"output {aliased[0][0]} shares memory with input {aliased[0][1]}")
    if answer.get("torch_ops"):
        return failed(Status.REJECTED_HACK, f"computes with torch: {', '.join(answer['torch_ops'][:3])}")
    judged = compare(task, case, answer["outputs"])
    return (None if judged.passed else Status.REJECTED_NUMERIC), judged


def _failed_job(result: JobResult, cases: Sequence[Case]) -> Correctness:
    status, what = _OUTCOMES[result.outcome]
    reason = f"{what}: {result.error}" if result.error else what
    return _all_failed(status, reason, cases)


def _all_failed(status: Status, reason: str, cases: Sequence[Case]) -> Correctness:
    return Correctness(status, reason, tuple(CaseResult(case=c.name, passed=False, reason=reason) for c in cases))
