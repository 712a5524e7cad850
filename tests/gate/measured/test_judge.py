"""The measured judge from end to end, with real compilation and capture, and stand-ins for the GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import stand_in

from klineage.gate.exchange import JobResult
from klineage.gate.measured.client import GpuWorker
from klineage.gate.measured.judge import SEES, TUNED, MeasuredGate, MeasuredTaskGate
from klineage.gate.workers import Limits
from klineage.model import Kernel, Provenance, Status, target
from klineage.store import open_store
from klineage.task import load_task

HERE = Path(__file__).parent
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
KERNEL = """@triton.jit
def affine(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(y_ptr + offs, 2 * x + 1, mask=offs < n)


"""
RUN = """def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    affine[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
    return y
"""
HONEST = HEAD + KERNEL + RUN
READS = HONEST.replace("    n = x.numel()\n", "    n = x.numel()\n    if float(x[0]) > 1e30:\n        return y\n")
TUNE = "@triton.autotune([triton.Config({'BLOCK': 128}), triton.Config({'BLOCK': 256})], key=['n'])\n"
TUNED_SOURCE = HEAD + TUNE + KERNEL + RUN.replace(", BLOCK=128)", ")").replace("(triton.cdiv(n, 128),)", "GRID")
TUNED_SOURCE = TUNED_SOURCE.replace("[GRID]", "[lambda meta: (triton.cdiv(n, meta['BLOCK']),)]")


def named(name: str) -> Kernel:
    """A kernel whose launches the stand-in of that name stands for."""
    return Kernel(source=HONEST.replace("affine", name))


@pytest.fixture(scope="module")
def task_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (HERE.parent / "data" / "affine_task.py").read_text().replace("2**22", "2**12")
    path = tmp_path_factory.mktemp("task") / "affine_task.py"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("store")
    store = open_store(str(folder / "store.db"))
    worker = GpuWorker(folder, 6.0, [str(HERE / "stand_in.py")])
    gate = MeasuredGate(target("sm_90"), store, limits=Limits(wall_s=30.0), worker=worker)
    yield gate
    gate.close()
    store.close()


@pytest.fixture(scope="module")
def judge(gate: MeasuredGate, task_file: Path) -> MeasuredTaskGate:
    return gate.bind(load_task(task_file))


HOSTILE = {
    "drops_the_tail": (Status.REJECTED_NUMERIC, "NaN"),
    "past_the_end": (Status.REJECTED_NUMERIC, "wrote outside"),
    "before_the_start": (Status.REJECTED_NUMERIC, "wrote outside"),
    "mutates": (Status.REJECTED_HACK, "input 0 was modified"),
    "mutates_when_large": (Status.REJECTED_NUMERIC, "modified input 0"),
    "wrong_when_large": (Status.REJECTED_NUMERIC, "a timed call's error"),
    "once": (Status.REJECTED_NUMERIC, "NaN"),
    "races": (Status.REJECTED_NUMERIC, "two runs differ: a race"),
    "too_large": (Status.REJECTED_COMPILE, "CUDA error 701"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_kernel_that_does_wrong_on_the_device_is_rejected(judge: MeasuredTaskGate, name: str):
    status, reason = HOSTILE[name]
    verdict = judge.judge(named(name))
    assert (verdict.status, reason in verdict.reason) == (status, True), (verdict.status, verdict.reason)


@pytest.mark.parametrize("name", ["illegal_access", "takes_the_worker_along", "never_ends"])
def test_a_lost_worker_is_replaced_and_the_next_kernel_judged_right(judge: MeasuredTaskGate, name: str):
    before = judge.device.worker.replaced
    verdict = judge.judge(named(name))
    assert verdict.status is Status.REJECTED_NUMERIC
    assert "took the GPU down" in verdict.reason
    assert judge.examine(Kernel(source=HONEST)).accepted
    assert judge.device.worker.replaced > before


def test_returning_the_input_without_a_kernel_is_a_hack(judge: MeasuredTaskGate):
    verdict = judge.examine(Kernel(source=HEAD + KERNEL + "def run(x):\n    return x\n"), policed=False)
    assert verdict.status is Status.REJECTED_HACK
    assert "no kernel was launched" in verdict.reason


def test_a_launch_beside_a_returned_input_is_a_hack(judge: MeasuredTaskGate):
    verdict = judge.examine(Kernel(source=HONEST.replace("return y", "return x")), policed=False)
    assert verdict.status is Status.REJECTED_HACK
    assert "output 0 shares memory with input 0" in verdict.reason


def test_an_honest_kernel_carries_measured_evidence(judge: MeasuredTaskGate):
    verdict = judge.judge(Kernel(source=HONEST))
    assert verdict.accepted, verdict.reason
    assert (verdict.mode, verdict.launched_by) == (Provenance.MEASURED, "trusted")
    assert verdict.blind_spots == SEES
    (time,) = verdict.times
    assert time.latency.provenance is Provenance.MEASURED
    assert time.latency.value == pytest.approx(10.0, rel=0.01)
    assert time.interval_us is not None and time.interval_us[0] < 10.0 * 1.002 and time.interval_us[1] > 10.0 * 0.998
    assert time.vendor_us == {"torch": pytest.approx(stand_in.VENDOR_US, rel=0.01)}
    assert "Stand-in (132 SMs, 1000 MHz" in verdict.environment.device


def test_the_verdict_of_another_session_is_found_again(gate: MeasuredGate, judge: MeasuredTaskGate, task_file: Path):
    first = judge.judge(Kernel(source=HONEST))
    again = gate.bind(load_task(task_file))
    gate.worker.ask, ask = _refuse, gate.worker.ask  # type: ignore[method-assign]
    try:
        assert again.judge(Kernel(source=HONEST)).id == first.id
    finally:
        gate.worker.ask = ask  # type: ignore[method-assign]


def _refuse(request: dict[str, Any]) -> dict[str, Any]:
    raise AssertionError(f"asked to {request['do']}")


def test_against_an_incumbent_the_slower_kernel_is_rejected_with_an_interval(judge: MeasuredTaskGate):
    slow = Kernel(source=named("slow_affine").source.replace("128", "64"))
    incumbent = judge.judge(named("affine"))
    verdict = judge.judge(slow, incumbent)
    assert verdict.status is Status.REJECTED_SLOW
    assert verdict.reason.startswith("1.20") or verdict.reason.startswith("1.19"), verdict.reason
    assert verdict.incumbent == incumbent.kernel
    assert judge.judge(named("affine"), judge.judge(slow)).accepted


def test_the_same_instructions_are_not_raced(judge: MeasuredTaskGate):
    ratio = judge.race(named("affine"), Kernel(source=HONEST + "# a comment\n"))
    assert ratio is not None
    assert (ratio.low, ratio.value, ratio.high) == (1.0, 1.0, 1.0)


def test_a_profile_is_measured_for_this_device(judge: MeasuredTaskGate):
    kernel = Kernel(source=HONEST.replace("128", "256"))
    ((time, reports, why),) = judge.profile(kernel, judge.task.bench_cases)
    assert time is not None and why == ""
    assert time.latency.provenance is Provenance.MEASURED
    assert reports[0].sass["total"] > 0


def test_of_a_tuned_kernel_the_verdict_says_what_was_timed(judge: MeasuredTaskGate):
    verdict = judge.judge(Kernel(source=TUNED_SOURCE))
    assert verdict.accepted, verdict.reason
    assert TUNED in verdict.blind_spots


class Child:
    """Stands in for the confined child: answers as told, for the inputs it is given."""

    isolation = ("seccomp",)

    def __init__(self, **told: Any) -> None:
        self.told = told

    def run(self, function: str, payload: dict[str, Any]) -> JobResult:
        answers = [self._answer(case["inputs"][0], payload["timed"]) for case in payload["cases"]]
        value = {"cases": self.told.get("cases", answers)}
        return JobResult(self.told.get("outcome", "ok"), value, "", "", "", 0.1)

    def _answer(self, x: Any, timed: bool) -> dict[str, Any]:
        y = 2 * x + self.told.get("plus", 1)
        answer = {"outputs": [[y]] * 2, "changed": [], "torch_ops": [], "times": [20.0, 20.1] * 15 if timed else []}
        return {name: self.told.get(name, value) for name, value in answer.items()}


BY_CHILD = {
    "honest": (Child(), Status.ACCEPTED, ""),
    "wrong": (Child(plus=2), Status.REJECTED_NUMERIC, "error"),
    "mutates": (Child(changed=[0]), Status.REJECTED_HACK, "input 0 was modified"),
    "computes with torch": (Child(torch_ops=["torch.add"]), Status.REJECTED_HACK, "computes with torch: torch.add"),
    "forges its answer": (Child(cases=[{"outputs": []}]), Status.REJECTED_HACK, "ok in its own process"),
    "answers for another case": (Child(cases=[]), Status.REJECTED_HACK, "ok in its own process"),
    "ends early": (Child(cases=None, outcome="exited"), Status.REJECTED_HACK, "exited in its own process"),
    "times that are none": (Child(times=[float("nan")]), Status.REJECTED_HACK, "no times"),
}


@pytest.mark.parametrize("what", BY_CHILD)
def test_where_launches_cannot_be_captured_a_child_runs_them(judge: MeasuredTaskGate, what: str):
    child, status, reason = BY_CHILD[what]
    judge.device._child = child  # type: ignore[assignment]
    try:
        verdict = judge.examine(Kernel(source=READS))
    finally:
        judge.device._child = None
    assert (verdict.status, reason in verdict.reason) == (status, True), (verdict.status, verdict.reason)
    if verdict.accepted:
        assert verdict.launched_by == "child"
        assert "its launcher reads values of tensors" in verdict.blind_spots[-1]
        assert verdict.times[0].latency.value == pytest.approx(20.05, rel=0.01)


def test_no_child_runs_where_it_could_end_every_process(judge: MeasuredTaskGate):
    child = Child()
    child.isolation = ("landlock",)
    judge.device._child = child  # type: ignore[assignment]
    try:
        verdict = judge.examine(Kernel(source=READS))
    finally:
        judge.device._child = None
    assert verdict.status is Status.INCONCLUSIVE
    assert "this machine confines no process" in verdict.reason


def test_a_forged_record_of_launches_is_a_hack(judge: MeasuredTaskGate, monkeypatch: pytest.MonkeyPatch):
    recorded = judge._recorded

    def forged(kernel: Kernel, cases: Any) -> Any:
        compiled = recorded(kernel, cases)
        programs = {name: {**p, "steps": [*p["steps"], {"op": "exec"}]} for name, p in compiled.programs.items()}
        return dataclasses.replace(compiled, programs=programs)

    monkeypatch.setattr(judge, "_recorded", forged)
    verdict = judge.examine(Kernel(source=HONEST))
    assert verdict.status is Status.REJECTED_HACK
    assert "forged its record of launches" in verdict.reason
