"""The performance model: a modelled time for a compiled launch from its facts alone. Pure functions.

Each resource gives one term, the time the launch would need if that resource were the only one; ``latency`` is the
time of the programs' own chains of waiting. Terms overlap, but not perfectly: the launch takes the p-norm of them,
which is the largest when one dominates. ``docs/performance_model.md`` argues every term.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import HarnessError
from ..model import LaunchReport, LaunchTime, ModelTerm, Target, Traffic
from .perf_facts import LANES, SECTOR_BYTES, Facts, facts_of, load_sectors
from .perf_params import MODEL_VERSION, PerfParams, params_for

__all__ = ["MODEL_VERSION", "case_time", "launch_time"]

_SCHEDULERS = 4
_WIDTHS = {".128": 4, ".64": 2, "": 1}  # shared-memory clocks of one request at 128 bytes a clock


def launch_time(report: LaunchReport, traffic: Traffic, target: Target, params: PerfParams | None = None) -> LaunchTime:
    """Modelled time of one launch in us, the terms it was made of, and the term that decides.

    ``params`` replaces the target's own parameters (for fitting).
    """
    known = params or params_for(target)
    facts = facts_of(report, traffic, target, known)
    terms = [
        _dram(facts, target, known),
        _l2(facts, traffic, known),
        _load_store(report, traffic, facts, known),
        _shared(report, traffic, facts, known),
        *_dots(traffic, facts, target, known),
        _issue(facts, known),
        _special(traffic, facts, known),
        _handing_out(facts, known),
        _latency(traffic, facts, target, known),
    ]
    terms = [t for t in terms if t.time_us > 0]
    body = sum(t.time_us**known.overlap for t in terms) ** (1 / known.overlap)
    bound = max(terms, key=lambda t: t.time_us).name if terms else "launch"
    launch = ModelTerm(name="launch", time_us=known.launch_us, how=f"{known.launch_us:g} us per launch")
    return LaunchTime(kernel=report.kernel, time_us=body + known.launch_us, bound=bound, terms=(*terms, launch))


def case_time(
    reports: Sequence[LaunchReport], traffics: Sequence[Traffic], target: Target, params: PerfParams | None = None
) -> tuple[float, tuple[LaunchTime, ...]]:
    """Modelled time in us of launches made one after another, and each launch's own.

    The first launch after other work costs ``call_us`` more. Raises HarnessError when the lists differ in length.
    """
    if len(reports) != len(traffics):
        raise HarnessError(f"{len(reports)} compiled launches but {len(traffics)} traced ones")
    known = params or params_for(target)
    launches = tuple(launch_time(r, t, target, known) for r, t in zip(reports, traffics, strict=True))
    return sum(x.time_us for x in launches) + (known.call_us if launches else 0.0), launches


# ------------------------------------------------------------------------------------------------------- memory


def _dram(facts: Facts, target: Target, params: PerfParams) -> ModelTerm:
    memory = facts.memory
    moved = memory.dram_read + memory.stored + memory.lost * memory.spilled
    rate = target.dram_gbps * params.dram_efficiency
    time = moved / rate / 1e3
    again = memory.lost * (memory.reread + memory.spilled)
    reread = f" + read again {_mb(again)}" if again > 0.001 * moved else ""
    parts = f"read {_mb(memory.footprint)}{reread} + written {_mb(memory.stored)}"
    how = f"({parts}) / ({target.dram_gbps:g} GB/s x {params.dram_efficiency:g}) = {time:.1f} us"
    if again and memory.wave:
        how += f"; one wave loads {_mb(memory.wave)}, the L2 holds {_mb(target.l2_bytes)}: {memory.lost:.0%} missed"
    return ModelTerm(name="dram", time_us=time, how=how)


def _l2(facts: Facts, traffic: Traffic, params: PerfParams) -> ModelTerm:
    memory = facts.memory
    loaded = max(traffic.bytes_loaded, traffic.load_sectors * SECTOR_BYTES) - memory.l1_hits
    stored = max(traffic.bytes_stored, traffic.store_sectors * SECTOR_BYTES) + traffic.bytes_atomic
    moved = loaded + stored + 2 * memory.spilled
    time = moved / params.l2_gbps / 1e3
    spills = f" + spilled {_mb(2 * memory.spilled)}" if memory.spilled else ""
    how = f"(loaded {_mb(loaded)} + stored {_mb(stored)}{spills}) / {params.l2_gbps:g} GB/s = {time:.1f} us"
    return ModelTerm(name="l2", time_us=time, how=how)


def _load_store(report: LaunchReport, traffic: Traffic, facts: Facts, params: PerfParams) -> ModelTerm:
    sectors = (load_sectors(report, traffic) + traffic.store_sectors) / facts.blocks * facts.busiest
    time = _clocks(sectors / params.sectors_per_clock, params)
    how = (
        f"{sectors:,.0f} sectors of 32 bytes on the busiest SM / {params.sectors_per_clock:g} a clock"
        f" / {params.clock_ghz:g} GHz = {time:.1f} us"
    )
    return ModelTerm(name="load_store", time_us=time, how=how)


def _shared(report: LaunchReport, traffic: Traffic, facts: Facts, params: PerfParams) -> ModelTerm:
    """Shared-memory clocks of the innermost loops: operand reads of dots without tensor cores, tile staging."""
    code, passes = (report.loop_sass, facts.passes) if facts.passes else (report.sass, 1.0)
    clocks = sum(
        _of_width(code, name, width) * cost for name in ("LDS", "STS", "LDGSTS") for width, cost in _WIDTHS.items()
    )
    clocks += 4 * (code.get("LDSM", 0) + code.get("STSM", 0))
    note = ""
    if traffic.dot_flops and facts.passes:
        # operands whose rows lie across the copy's direction go in word by word, lanes in the same bank
        narrow = _of_width(code, "STS", "") + _of_width(code, "LDGSTS", "")
        share = code.get("load_bytes", 0) / LANES / max(1, code.get("LDG", 0) + code.get("LDGSTS", 0))
        cost = params.conflict_clocks * (0.25 if share < 4 else 1.0) - 1
        clocks += narrow * cost
        note = f", {narrow} of them word-wise stores with bank conflicts" if narrow else ""
    total = clocks * passes * facts.warps * facts.busiest * 128 / params.smem_bytes_per_clock
    time = _clocks(total, params)
    how = (
        f"{clocks:.0f} clocks per warp and pass{note} x {passes:.0f} passes x {facts.warps} warps"
        f" x {facts.busiest} programs / {params.clock_ghz:g} GHz = {time:.1f} us"
    )
    return ModelTerm(name="shared_memory", time_us=time, how=how)


# --------------------------------------------------------------------------------------------------- arithmetic


def _dots(traffic: Traffic, facts: Facts, target: Target, params: PerfParams) -> list[ModelTerm]:
    terms: list[ModelTerm] = []
    for kind, flops in traffic.dot_flops.items():
        if flops <= 0:
            continue
        rate, share, unit = _dot_rate(kind, facts, target, params)
        uneven = facts.busiest * target.sms / facts.blocks
        time = flops * uneven / (rate * share) / 1e6
        how = f"{flops / 1e9:.1f} GFLOP ({kind}, {unit}) x {uneven:.2f} on the busiest SM"
        how += f" / ({rate:g} TFLOP/s x {share:g}) = {time:.1f} us"
        terms.append(ModelTerm(name=f"dot_{kind}", time_us=time, how=how))
    return terms


def _dot_rate(kind: str, facts: Facts, target: Target, params: PerfParams) -> tuple[float, float, str]:
    """(peak TFLOP/s, share of it that is reached, the unit's name)."""
    peaks = {"tf32": target.tf32_tc_tflops, "fp8": target.fp8_tc_tflops, "int8": target.fp8_tc_tflops}
    if not (facts.warp_group_mma or facts.warp_mma) or kind in ("fp32-ieee", "fp64"):
        return target.fp32_tflops, params.ffma_efficiency, "FFMA"
    peak = peaks.get(kind, target.fp16_tc_tflops)
    if facts.warp_group_mma:
        return peak, params.tensor_efficiency, "warp-group MMA"
    return peak, params.warp_mma_efficiency, "warp MMA"


def _issue(facts: Facts, params: PerfParams) -> ModelTerm:
    total = facts.instructions * facts.warps * facts.busiest
    time = _clocks(total / (_SCHEDULERS * params.issue_efficiency), params)
    how = (
        f"{facts.instructions:,.0f} instructions per warp x {facts.warps} warps x {facts.busiest} programs"
        f" / ({_SCHEDULERS} a clock x {params.issue_efficiency:g}) / {params.clock_ghz:g} GHz = {time:.1f} us"
    )
    return ModelTerm(name="issue", time_us=time, how=how)


def _special(traffic: Traffic, facts: Facts, params: PerfParams) -> ModelTerm:
    lanes = traffic.mufu_lanes / facts.blocks * facts.busiest
    time = _clocks(lanes / params.mufu_lanes_per_clock, params)
    how = (
        f"{lanes:,.0f} exp, log, sqrt ... on the busiest SM / {params.mufu_lanes_per_clock:g} a clock"
        f" / {params.clock_ghz:g} GHz = {time:.1f} us"
    )
    return ModelTerm(name="special_function", time_us=time, how=how)


# ------------------------------------------------------------------------------------------- programs and latency


def _handing_out(facts: Facts, params: PerfParams) -> ModelTerm:
    time = facts.blocks * params.block_launch_ns / 1e3
    how = f"{facts.blocks:,} programs x {params.block_launch_ns:g} ns = {time:.1f} us"
    return ModelTerm(name="program_launch", time_us=time, how=how)


def _latency(traffic: Traffic, facts: Facts, target: Target, params: PerfParams) -> ModelTerm:
    """The chain one program waits through, times the waves: Little's law seen from a program."""
    missed = min(1.0, facts.memory.dram_read / max(1.0, traffic.bytes_loaded - facts.memory.l1_hits))
    wait = missed * params.dram_latency_us + (1 - missed) * params.l2_latency_us
    fill = _clocks(traffic.bytes_loaded / facts.blocks / max(1.0, facts.rounds) / params.fill_bytes_per_clock, params)
    loads = facts.rounds * (wait + fill)
    work = _own_work(traffic, facts, target, params)
    if facts.in_flight:
        chain = wait + max(facts.rounds * (wait / facts.in_flight + fill), work)
        way = f"{wait:.2f} + max({facts.rounds:.0f} rounds of loads, {facts.in_flight} in flight, {work:.2f} of work)"
    else:
        chain = loads + work
        way = f"{facts.rounds:.0f} rounds of loads x ({wait:.2f} + {fill:.2f}) + {work:.2f} of work"
    time = facts.waves * (params.program_us + chain)
    how = f"{facts.waves} waves of {facts.resident} programs per SM x ({params.program_us:g} + {way}) = {time:.1f} us"
    return ModelTerm(name="latency", time_us=time, how=how)


def _own_work(traffic: Traffic, facts: Facts, target: Target, params: PerfParams) -> float:
    """us one program alone on its SM computes: instructions, dots, reductions, barriers of the dot loop."""
    per_warp = max(facts.warps / (_SCHEDULERS * params.issue_efficiency), params.clocks_per_instruction)
    work = _clocks(facts.instructions * per_warp, params)
    work += traffic.reductions * (params.reduction_us + params.reduction_warp_us * (facts.warps - 1))
    for kind, flops in traffic.dot_flops.items():
        rate, share, _ = _dot_rate(kind, facts, target, params)
        work += flops / facts.blocks / (rate * share / target.sms) / 1e6
    if traffic.dot_flops:
        work += traffic.load_rounds * params.barrier_us
    return work


# ------------------------------------------------------------------------------------------------------ arithmetic


def _clocks(clocks: float, params: PerfParams) -> float:
    """us of so many clocks."""
    return clocks / (params.clock_ghz * 1e3)


def _of_width(code: dict[str, int], name: str, width: str) -> int:
    """Instructions of one access width; the narrow ones are those that are neither 64 nor 128 bits."""
    if width:
        return code.get(name + width, 0)
    return code.get(name, 0) - code.get(f"{name}.64", 0) - code.get(f"{name}.128", 0)


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f} MB"
