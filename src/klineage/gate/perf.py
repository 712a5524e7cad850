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
    ahead = bool(facts.in_flight and traffic.dot_flops)
    body = _overlapped(terms, known.hiding_ahead if ahead else known.hiding, known)
    bound = max(terms, key=lambda t: t.time_us).name if terms else "launch"
    launch = ModelTerm(name="launch", time_us=known.launch_us, how=f"{known.launch_us:g} us per launch")
    return LaunchTime(kernel=report.kernel, time_us=body + known.launch_us, bound=bound, terms=(*terms, launch))


def _overlapped(terms: Sequence[ModelTerm], hiding: float, params: PerfParams) -> float:
    """us of terms that overlap: resources work at the same time, waiting hides behind them less well."""
    busy = sum(t.time_us**params.overlap for t in terms if t.name != "latency") ** (1 / params.overlap)
    waiting = sum(t.time_us for t in terms if t.name == "latency")
    return (busy**hiding + waiting**hiding) ** (1 / hiding)


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
    again, spills = memory.lost * memory.reread, memory.spills_written + memory.spills_read
    rate = target.dram_gbps * params.dram_efficiency
    time = (memory.footprint + again + memory.stored + spills) / rate / 1e3
    parts = [f"read {_mb(memory.footprint)}", f"written {_mb(memory.stored)}"]
    parts += [f"read again {_mb(again)}"] if again else []
    parts += [f"spilled {_mb(spills)}"] if spills else []
    how = f"({' + '.join(parts)}) / ({target.dram_gbps:g} GB/s x {params.dram_efficiency:g}) = {time:.1f} us"
    if memory.reread and memory.wave:
        how += f"; one wave loads {_mb(memory.wave)}, the L2 holds {_mb(target.l2_bytes)}: {memory.lost:.0%} missed"
    return ModelTerm(name="dram", time_us=time, how=how)


def _l2(facts: Facts, traffic: Traffic, params: PerfParams) -> ModelTerm:
    memory = facts.memory
    loaded = max(traffic.bytes_loaded, traffic.load_sectors * SECTOR_BYTES) - memory.l1_hits
    stored = traffic.bytes_stored + traffic.bytes_atomic
    partial = max(0.0, traffic.store_sectors * SECTOR_BYTES - traffic.bytes_stored)
    parts = [f"loaded {_mb(loaded)}", f"stored {_mb(stored)}"]
    parts += [f"{params.partial_store_cost:g} x {_mb(partial)} of sectors stored in part"] if partial else []
    parts += [f"{params.spill_cost:g} x spilled {_mb(memory.spilled)}"] if memory.spilled else []
    moved = loaded + stored + params.partial_store_cost * partial + params.spill_cost * memory.spilled
    time = moved / params.l2_gbps / 1e3
    how = f"({' + '.join(parts)}) / {params.l2_gbps:g} GB/s = {time:.1f} us"
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
    clocks = params.smem_efficiency**-1 * sum(
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
    total = clocks * passes * facts.warps * facts.busiest
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
    # the loads of one round are waited for together: one round to DRAM at least, more as more bytes come from there
    missed = min(1.0, max(1 / max(1.0, facts.rounds), facts.memory.dram_read / max(1.0, traffic.bytes_loaded)))
    wait = missed * params.dram_latency_us + (1 - missed) * params.l2_latency_us
    wait += params.bulk_copy_us if facts.bulk and not facts.in_flight else 0.0
    fill = _clocks(traffic.bytes_loaded / facts.blocks / params.fill_bytes_per_clock, params)
    per_warp = max(facts.warps / (_SCHEDULERS * params.issue_efficiency), params.clocks_per_instruction)
    code = _clocks(facts.instructions * per_warp, params)
    outside = _clocks(facts.straight * per_warp, params)
    dots, joins = _own_dots(traffic, facts, target, params), _own_joins(traffic, facts, params)
    if facts.in_flight:
        inside = max(code - outside, dots)
        chain = wait + max(facts.rounds * wait / facts.in_flight + fill, inside) + outside + joins
        way = f"first load {wait:.2f} + max({facts.rounds:.0f} loads x {wait:.2f} / {facts.in_flight} in flight + "
        way += (
            f"{fill:.2f} of copying, {inside:.2f} of work) + {outside:.2f} outside the loop + {joins:.2f} of reductions"
        )
    else:
        chain = facts.rounds * wait + max(fill, code) + dots + joins
        way = f"{facts.rounds:.0f} loads x {wait:.2f} + {max(fill, code):.2f} of copying or instructions"
        way += f" + {dots:.2f} of dots + {joins:.2f} of reductions and barriers"
    start = params.program_us + params.program_warp_us * facts.warps
    time = facts.waves * (start + chain)
    how = f"{facts.waves} waves of {facts.resident} programs per SM x (start {start:.2f} + {way}) = {time:.1f} us"
    return ModelTerm(name="latency", time_us=time, how=how)


def _own_dots(traffic: Traffic, facts: Facts, target: Target, params: PerfParams) -> float:
    """us of one program's dots alone on its SM."""
    total = 0.0
    for kind, flops in traffic.dot_flops.items():
        rate, share, _ = _dot_rate(kind, facts, target, params)
        total += flops / facts.blocks / (rate * share / target.sms) / 1e6
    return total


def _own_joins(traffic: Traffic, facts: Facts, params: PerfParams) -> float:
    """us in which one program's warps wait for each other: reductions, tiles staged through registers."""
    total = traffic.reductions * (params.reduction_us + params.reduction_warp_us * (facts.warps - 1))
    return total + (max(1.0, traffic.loop_trips) * params.barrier_us if facts.staged else 0.0)


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
