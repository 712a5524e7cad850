"""Profile without a GPU: trace sampled programs of a bench case, then let the performance model give a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..model import Case, CaseTime, Kernel, LaunchReport, LaunchTime, ModelTerm, Target, Traffic, modelled
from ..task import Task
from .perf import case_time
from .perf_params import params_for
from .workers import Zygote

TRACE_JOB = "klineage.gate.interpreter.jobs:trace_job"


@dataclass(frozen=True)
class Profiled:
    """A case's time with the traffic it was computed from, or the reason why there is none."""

    time: CaseTime | None
    traffic: tuple[Traffic, ...]
    reason: str
    host_bytes_written: float = 0.0  # by torch calls of the launcher
    fault: bool = False  # a sampled program broke a rule of memory
    disagrees: bool = False  # traced and compiled launches are not the same


def profile_case(
    worker: Zygote, task: Task, kernel: Kernel, case: Case, reports: Sequence[LaunchReport], target: Target
) -> Profiled:
    """The modelled time of one bench case from its compiled launches and traced programs."""
    if not reports:
        return Profiled(None, (), f"case {case.name} launches no kernel")
    payload: dict[str, Any] = {
        "source": kernel.source,
        "entry": kernel.entry,
        "target": target.name,
        "inputs": [list(spec) for spec in task.input_specs(case)],
        "waves": [target.sms * max(1, r.occupancy.blocks_per_sm) for r in reports],
        "configs": [r.config for r in reports],
    }
    result = worker.run(TRACE_JOB, payload)
    if result.value is None:
        return Profiled(None, (), f"case {case.name} could not be traced: {result.outcome} {result.error}".strip())
    traced = result.value.get("launches", [])
    why = result.value.get("error")
    if why:
        fault = result.value.get("kind") in ("out_of_bounds", "write_race", "read_race")
        return Profiled(None, (), str(why) if fault else f"case {case.name} could not be traced: {why}", fault=fault)
    if [(t["kernel"], t["line"], tuple(t["grid"])) for t in traced] != [(r.kernel, r.line, r.grid) for r in reports]:
        return Profiled(None, (), "it launched other kernels or grids than when compiled", disagrees=True)
    traffic = tuple(Traffic.model_validate(t["traffic"]) for t in traced)
    time_us, launches = case_time(list(reports), list(traffic), target)
    moved = result.value["host"]
    calls = [_torch_call(str(name), int(read) + int(written), target) for name, read, written in moved]
    time_us, launches = time_us + sum(call.time_us for call in calls), (*launches, *calls)
    work = task.work(case)
    floor_us = max(work.bytes / target.dram_gbps / 1e3, work.flops / target.fp16_tc_tflops / 1e6)
    timed = CaseTime(case=case.name, latency=modelled(time_us, "us"), launches=launches, roofline_us=floor_us)
    return Profiled(timed, traffic, "", float(sum(int(call[2]) for call in moved)))


def _torch_call(name: str, size: int, target: Target) -> LaunchTime:
    """The time of a torch call of the launcher: it moves bytes through device memory and is a launch itself."""
    launch_us = params_for(target).launch_us
    memory_us = size / target.dram_gbps / 1e3
    terms = (
        ModelTerm(name="DRAM", time_us=memory_us, how=f"{size} bytes at {target.dram_gbps:g} GB/s"),
        ModelTerm(name="launch", time_us=launch_us, how=f"{launch_us:g} us per launch"),
    )
    return LaunchTime(kernel=name, time_us=memory_us + launch_us, bound="DRAM", terms=terms)
