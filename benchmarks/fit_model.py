"""Fit the performance model's parameters to measurements: coordinate descent on squared log errors, with priors.

    python benchmarks/fit_model.py facts.json [measured.json] [seconds]

Starts from the target's present parameters, which are also the priors' centres, and prints what it would change.
Held-out variants are left out. The result is for a person to round and copy into ``gate/perf_params.py``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

from klineage.gate.perf import case_time
from klineage.gate.perf_params import PerfParams, params_for
from klineage.model import LaunchReport, Traffic, target

TARGET = target("sm_90")
MEASURED = Path(__file__).with_name("data") / "h200.json"
# parameter: how far (in log units) it may stray from where it is before the prior costs as much as a 14% error
FREE = {
    "dram_efficiency": 0.05, "l2_gbps": 0.1, "l2_keeps": 0.2, "l2_loses": 0.2, "sectors_per_clock": 0.1,
    "smem_efficiency": 0.1, "conflict_clocks": 0.1, "tensor_efficiency": 0.05, "warp_mma_efficiency": 0.3,
    "dram_latency_us": 0.15, "l2_latency_us": 0.15, "program_us": 0.3, "program_warp_us": 0.4, "reduction_us": 0.3,
    "reduction_warp_us": 0.5, "barrier_us": 0.4, "clocks_per_instruction": 0.3, "overlap": 0.5, "hiding": 0.3,
    "hiding_ahead": 0.3, "launch_us": 0.2, "bulk_copy_us": 0.3,
}  # fmt: skip
_ODD_ONES = ("column", "transpose", "special", "copy")  # single-purpose kernels weigh less
Sample = tuple[list[LaunchReport], list[Traffic], float, float]


def samples(facts: Path, measured: Path) -> list[Sample]:
    """(reports, traffic, measured us, weight) of every variant that may be fitted on."""
    times = {name: v["us"] for name, v in json.loads(measured.read_text())["variants"].items()}
    found: list[Sample] = []
    for name, fact in json.loads(facts.read_text()).items():
        if name.startswith("held-"):
            continue
        reports = [LaunchReport.model_validate(r) for r in fact["reports"]]
        traffics = [Traffic.model_validate(t) for t in fact["traffic"]]
        found.append((reports, traffics, times[name], 0.4 if name.startswith(_ODD_ONES) else 1.0))
    return found


def cost(params: PerfParams, data: list[Sample], prior: PerfParams) -> float:
    """Huber loss of log ratios plus priors."""
    total = 0.0
    for reports, traffics, measured, weight in data:
        error = abs(math.log(case_time(reports, traffics, TARGET, params)[0] / measured))
        total += weight * (error * error if error < 0.3 else 0.6 * error - 0.09)
    return total + sum(
        0.02 * (math.log(getattr(params, name) / getattr(prior, name)) / width) ** 2 for name, width in FREE.items()
    )


def fit(data: list[Sample], prior: PerfParams, seconds: float) -> PerfParams:
    """The parameters that coordinate descent reaches within so many seconds."""
    params, best, steps = prior, cost(prior, data, prior), dict.fromkeys(FREE, 0.1)
    end = time.monotonic() + seconds
    while max(steps.values()) > 0.005:
        for name in FREE:
            for sign in (1, -1):
                tried = params.model_copy(update={name: getattr(params, name) * (1 + sign * steps[name])})
                value = cost(tried, data, prior)
                if value < best - 1e-6:
                    params, best = tried, value
                    break
            else:
                steps[name] *= 0.6
            if time.monotonic() > end:
                return params
    return params


def main(facts: Path, measured: Path = MEASURED, seconds: float = 120.0) -> None:
    """Print each parameter before and after."""
    data, prior = samples(facts, measured), params_for(TARGET)
    found = fit(data, prior, seconds)
    print(f"{len(data)} variants, cost {cost(prior, data, prior):.3f} -> {cost(found, data, prior):.3f}")
    for name in FREE:
        print(f"{name:24s} {getattr(prior, name):10.4g} {getattr(found, name):10.4g}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        Path(given[0]),
        Path(given[1]) if len(given) > 1 else MEASURED,
        float(given[2]) if len(given) > 2 else 120.0,
    )
