"""What the worker's replies are worth as figures: a case's time, or why it is none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model import Case, CaseTime, Work, measured
from .stats import beyond_roofline

_NARROW = ("fp8", "int8")  # types that matrix units take at twice the rate of fp16


def case_time(
    case: Case,
    reply: Mapping[str, Any],
    work: Work,
    bounded: bool,
    facts: Mapping[str, Any],
    peaks: Mapping[str, float],
) -> CaseTime | str:
    """The case's time, or why it cannot be one: less than 105% of the device's measured rates take for the work.

    ``bounded``: the task itself says what work is needed; what torch counts bounds nothing. ``facts`` and ``peaks`` are
    the device's.
    """
    time_us, (low, high) = float(reply["us"]), reply["interval"]
    tflops = peaks["fp16_tflops"] * (2 if str(case.params.get("dtype")).startswith(_NARROW) else 1)
    l2 = float(facts["l2_bytes"])
    if bounded and beyond_roofline(time_us, work.bytes, work.flops, l2, peaks["gbps"], tflops):
        return f"case {case.name}: {time_us:.4g} us is less than this device needs for the work: invalid, not fast"
    clock = reply.get("clock_mhz")
    return CaseTime(
        case=case.name,
        latency=measured(time_us, "us"),
        interval_us=(float(low), float(high)),
        vendor_us={str(k): float(v) for k, v in reply["vendors"].items()},
        roofline_us=max(work.bytes / peaks["gbps"] / 1e3, work.flops / tflops / 1e6),
        clock_mhz=(int(clock[0]), int(clock[1])) if clock else None,
    )
