"""Correctness: the candidate runs in a confined child under the interpreter; the parent compares with the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ..model import Case, CaseResult, Kernel, LaunchReport, Status, Target
from ..model.verdict import Layer
from ..task import Task, compare
from .twins import SUFFIX, twins_of
from .workers import JobResult, Zygote

RUN_JOB = "klineage.gate.interpreter.jobs:run_job"
_OUTCOMES = {
    "ok": (Status.INFRA_ERROR, "gave no answer"),
    "timeout": (Status.REJECTED_NUMERIC, "timed out"),
    "exited": (Status.REJECTED_HACK, "ended its process instead of answering"),
    "output_cap": (Status.REJECTED_HACK, "flooded its output"),
    "killed": (Status.REJECTED_NUMERIC, "crashed its process"),
    "error": (Status.INFRA_ERROR, "the job itself failed"),  # the job catches what a candidate raises
    "malformed": (Status.REJECTED_HACK, "forged its answer"),
}
_FAULTS = {"out_of_bounds", "write_race", "read_race"}
_FIELDS = {
    "error": (str, type(None)), "kind": (str, type(None)), "outputs": list, "modified": list, "aliases": list,
    "launches": int, "kernels": list, "torch_ops": list, "unaccounted": list, "grids": list, "lines": list,
    "scalars": int, "threads": int,
}  # fmt: skip


Ran = tuple[str, int, tuple[int, ...]]  # kernel, line it is defined in, grid


@dataclass(frozen=True)
class Correctness:
    """Results by case; ``status`` is None when every case passed. ``ran``: the launches made, by case."""

    status: Status | None
    reason: str
    cases: tuple[CaseResult, ...]
    layer: Layer | None = None
    ran: Mapping[str, tuple[Ran, ...]] | None = None
    configurations: int = 1  # the most that any of its tuners had


class _Refused(Exception):
    """What is wrong with one case's answer."""

    def __init__(self, status: Status, layer: Layer, reason: str) -> None:
        super().__init__(reason)
        self.status, self.layer, self.reason = status, layer, reason


def check_correctness(
    worker: Zygote,
    task: Task,
    kernel: Kernel,
    cases: Sequence[Case],
    target: Target,
    configs: Mapping[str, Sequence[str | None]] | None = None,
    config_index: int = 0,
) -> Correctness:
    """Run every case in one child, two of them twice with other values, and compare.

    Expected values never leave the parent. ``configs``: for each case the configurations that tuning chose, by launch;
    ``config_index``: which one where none was chosen.
    """
    again, twins = twins_of(task, cases)
    asked = [*((task, c) for c in cases), *((again, c) for c in twins)]
    payload = {
        "source": kernel.source,
        "entry": kernel.entry,
        "target": target.name,
        "config_index": config_index,
        "cases": [
            {
                "name": c.name,
                "inputs": list(owner.make_inputs(c)),
                "again": c.name.removesuffix(SUFFIX) if owner is again else "",
                "configs": list((configs or {}).get(c.name.removesuffix(SUFFIX), ())),
            }
            for owner, c in asked
        ],
    }
    result = worker.run(RUN_JOB, payload)
    answers = _answers(result, [c.name for _, c in asked])
    if answers is None:
        return _failed_job(result, cases)
    value = cast(dict[str, Any], result.value)
    judged = _judged(asked, answers, value.get("tampered"))
    return replace(judged, configurations=max(1, int(value.get("configurations") or 1)))


def _answers(result: JobResult, names: list[str]) -> dict[str, Mapping[str, Any]] | None:
    """Answers by case, or None when they are not what was asked for."""
    found = result.value.get("cases") if result.value is not None else None
    if not isinstance(found, list):
        return None
    answers = cast(list[Any], found)
    if not all(isinstance(a, dict) for a in answers) or [a.get("name") for a in answers] != names:
        return None
    if not all(isinstance(a.get(k), kind) for a in answers for k, kind in _FIELDS.items()):
        return None
    return dict(zip(names, answers, strict=True))


def _judged(asked: Sequence[tuple[Task, Case]], answers: Mapping[str, Mapping[str, Any]], tampered: Any) -> Correctness:
    results: list[CaseResult] = []

    def refused(case: str, error: _Refused) -> Correctness:
        if not results or results[-1].passed:
            results.append(CaseResult(case=case, passed=False, reason=error.reason))
        return Correctness(error.status, f"case {case}: {error.reason}", tuple(results), error.layer)

    for task, case in asked:
        answer = answers[case.name]
        try:
            _refuse_means(task, answer)
            results.append(compare(task, case, answer["outputs"]))
            if not results[-1].passed:
                raise _Refused(Status.REJECTED_NUMERIC, Layer.COMPARISON, results[-1].reason)
            if case.name.endswith(SUFFIX) and answer["scalars"] != answers[case.name.removesuffix(SUFFIX)]["scalars"]:
                reason = "it launches otherwise for other values of the same shape"
                raise _Refused(Status.REJECTED_HACK, Layer.AGREEMENT, reason)
        except _Refused as error:
            return refused(case.name, error)
    if not isinstance(tampered, list) or tampered:
        changed = ", ".join(map(str, cast(list[Any], tampered)[:3])) if isinstance(tampered, list) else "its report"
        return refused(asked[-1][1].name, _Refused(Status.REJECTED_HACK, Layer.WATCH, f"it changed {changed}"))
    ran = {
        name: tuple((str(k), int(i), tuple(g)) for k, i, g in zip(a["kernels"], a["lines"], a["grids"], strict=True))
        for name, a in answers.items()
    }
    return Correctness(None, "", tuple(results), None, ran)


def agreeing(correctness: Correctness, compiled: Mapping[str, Sequence[LaunchReport]]) -> Correctness:
    """The same results, or a refusal when the kernels run in some case are not those compiled for it."""
    for name, ran in (correctness.ran or {}).items():
        asked = compiled.get(name)
        if asked is None:
            continue
        promised = tuple((r.kernel, r.line, tuple(r.grid)) for r in asked)
        if promised != ran:
            reason = f"case {name}: it launched {_names(ran)}, but {_names(promised)} when compiled"
            return Correctness(Status.REJECTED_HACK, reason, correctness.cases, Layer.AGREEMENT)
    return correctness


def _names(launches: Sequence[Ran]) -> str:
    told = [f"{kernel} (line {line}) x {'x'.join(map(str, grid))}" for kernel, line, grid in launches[:3]]
    return ", ".join(told) + (" ..." if len(launches) > 3 else "") if told else "nothing"


def _refuse_means(task: Task, answer: Mapping[str, Any]) -> None:
    """Refuse an answer for how it was come by, whatever its values. Raises _Refused."""
    hack, watch = Status.REJECTED_HACK, Layer.WATCH
    if answer["error"]:
        fault = answer["kind"] in _FAULTS
        raise _Refused(Status.REJECTED_NUMERIC, Layer.SANITIZER if fault else Layer.RAISED, str(answer["error"])[:500])
    if answer["launches"] < 1:
        raise _Refused(hack, watch, "no kernel was launched: the answer was made without one")
    if answer["threads"] > 0:
        raise _Refused(hack, watch, "it left a thread running")
    changed = [i for i in answer["modified"] if i not in task.info.in_place]
    if changed:
        raise _Refused(hack, watch, f"input {changed[0]} was modified and the task is not in place")
    aliased = [pair for pair in answer["aliases"] if pair[1] not in task.info.in_place]
    if aliased:
        raise _Refused(hack, watch, f"output {aliased[0][0]} shares memory with input {aliased[0][1]}")
    if answer["torch_ops"]:
        raise _Refused(hack, watch, f"computes with torch: {', '.join(map(str, answer['torch_ops'][:3]))}")
    if answer["unaccounted"]:
        raise _Refused(hack, watch, str(answer["unaccounted"][0]))


def _failed_job(result: JobResult, cases: Sequence[Case]) -> Correctness:
    forged = result.value is not None or result.error.startswith("malformed answer")
    status, what = _OUTCOMES["malformed" if forged else result.outcome]
    reason = f"{what}: {result.error}" if result.error else what
    failed = tuple(CaseResult(case=c.name, passed=False, reason=reason) for c in cases)
    return Correctness(status, reason, failed, Layer.LIMITS)
