"""What a launch does per program, per SM and per wave: the quantities that the performance model's terms share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..model import LaunchReport, Target, Traffic
from .perf_params import PerfParams

LANES = 32
BULK_COPIES = ("UTMALDG", "UBLKCP")
ASYNCHRONOUS = ("LDGSTS", *BULK_COPIES)
SECTOR_BYTES = 32
_VECTOR_BYTES = 16  # widest access of one lane
_WARP_GROUP_MMA = ("HGMMA", "QGMMA", "IGMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA")
_WARP_MMA = ("HMMA", "IMMA", "QMMA", "DMMA")


@dataclass(frozen=True)
class Memory:
    """Bytes of a launch by where they are served from. ``lost`` is the share of re-reads that miss the L2."""

    footprint: float  # distinct bytes loaded
    reread: float  # bytes loaded again by the program or wave that had them, or by a later wave
    lost: float
    wave: float | None  # distinct bytes loaded by the programs resident at once
    stored: float
    l1_hits: float  # bytes of tables so small that each SM keeps them
    spilled: float  # bytes of spill stores; as many are loaded again
    spills_written: float  # the part of them that the L2 cannot hold until it is overwritten
    spills_read: float  # and until it is loaded

    @property
    def dram_read(self) -> float:
        """Bytes of tensors read from DRAM."""
        return self.footprint + self.lost * self.reread


@dataclass(frozen=True)
class Facts:
    """A launch seen from one SM. Counts are per program unless they say otherwise."""

    blocks: int
    warps: int
    resident: int  # programs on one SM at once
    busiest: int  # programs of the SM that gets most
    waves: int  # rounds of resident programs on that SM
    passes: float  # of the innermost loops' code (unrolled by the compiler)
    instructions: float  # issued by one warp
    straight: float  # the part of them outside innermost loops
    rounds: float  # groups of loads, each waiting for the one before
    in_flight: int  # groups of loads issued ahead by the software pipeline; 0 without one
    staged: bool  # tiles of dots go through registers: loaded, stored to shared memory, waited for
    bulk: bool  # loads by the bulk copy engine
    warp_group_mma: bool
    warp_mma: bool
    memory: Memory


def facts_of(report: LaunchReport, traffic: Traffic, target: Target, params: PerfParams) -> Facts:
    """Derive the shared quantities of one launch."""
    blocks = max(1, traffic.blocks)
    busiest = math.ceil(blocks / target.sms)
    resident = max(1, min(report.occupancy.blocks_per_sm, busiest))
    passes = loop_passes(report, traffic)
    in_loop = report.loop_sass.get("total", 0)
    straight = report.sass.get("total", 0) - in_loop
    return Facts(
        blocks=blocks,
        warps=report.num_warps,
        resident=resident,
        busiest=busiest,
        waves=math.ceil(busiest / resident),
        passes=passes,
        straight=straight,
        instructions=straight + in_loop * passes,
        rounds=_rounds(report, traffic, passes),
        in_flight=_in_flight(report, traffic),
        staged=bool(traffic.dot_flops) and not any(name in report.sass for name in ASYNCHRONOUS),
        bulk=any(name in report.sass for name in BULK_COPIES),
        warp_group_mma=any(name in report.sass for name in _WARP_GROUP_MMA),
        warp_mma=any(name in report.sass for name in _WARP_MMA),
        memory=_memory(report, traffic, target, params, passes),
    )


def loop_passes(report: LaunchReport, traffic: Traffic) -> float:
    """Times one warp runs the code of its innermost loops, each loop once: its work over the code's work.

    Compilers unroll, so passes are fewer than the source's trips.
    """
    loop = report.loop_sass
    per_warp = max(1, traffic.blocks) * report.num_warps
    if not loop.get("total"):
        return 0.0
    if loop.get("mma_flops"):
        return sum(traffic.dot_flops.values()) / per_warp / loop["mma_flops"]
    if loop.get("load_bytes"):
        return traffic.bytes_loaded / per_warp / loop["load_bytes"]
    return traffic.loop_trips / max(1, loop.get("loops", 1))


def _rounds(report: LaunchReport, traffic: Traffic, passes: float) -> float:
    """Groups of loads one after another. Unrolled trips without barriers are issued together, trips of a dot not."""
    if traffic.dot_flops or not passes:
        return traffic.load_rounds
    outside = max(0.0, traffic.load_rounds - traffic.loop_trips)
    return min(traffic.load_rounds, outside + passes * report.loop_sass.get("loops", 1))


def _in_flight(report: LaunchReport, traffic: Traffic) -> int:
    """Stages the compiler really pipelined: asynchronous copies in the code, buffers in shared memory.

    A warp-group instruction still reads its buffer while the next trip begins, so it takes one stage more.
    """
    if not any(name in report.sass for name in ASYNCHRONOUS):
        return 0
    if traffic.dot_flops:
        held = 2 if any(name in report.sass for name in _WARP_GROUP_MMA) else 1
        return max(0, report.num_stages - held)
    return max(1, min(8, round(report.smem_bytes / max(1.0, traffic.tile_bytes_per_round))))


def _memory(report: LaunchReport, traffic: Traffic, target: Target, params: PerfParams, passes: float) -> Memory:
    blocks = max(1, traffic.blocks)
    footprint = _loaded_footprint(traffic)
    own = traffic.program_unique_bytes
    own = min(own, traffic.bytes_loaded / blocks) if own is not None else _own_bytes(traffic)
    again = max(0.0, traffic.bytes_loaded - blocks * own)
    wave, across = None, 0.0
    if traffic.wave_unique_bytes is not None and traffic.wave_blocks:
        wave = traffic.wave_unique_bytes * footprint / max(1.0, traffic.unique_bytes)
        waves = traffic.waves or blocks / traffic.wave_blocks
        across = max(0.0, wave * waves - footprint)
    held = (report.stack_bytes or report.spill_bytes / 2) * report.num_warps * LANES  # of one program
    spilled = _spilled(report, passes) * report.num_warps * LANES * blocks
    live = held * min(blocks, target.sms * report.occupancy.blocks_per_sm)
    between = (traffic.wave_unique_bytes or 0.0) / max(1.0, passes) + live
    return Memory(
        footprint=footprint,
        reread=again + across,
        lost=_lost(wave, target, params) * (params.kept_on_request if report.sass.get("LDG.EL") else 1.0),
        spills_written=spilled * _lost(between, target, params),
        spills_read=spilled * _lost(live, target, params),
        wave=wave,
        stored=traffic.bytes_stored + traffic.bytes_atomic,
        l1_hits=_l1_hits(report, traffic, own, wave, params),
        spilled=spilled,
    )


def _spilled(report: LaunchReport, passes: float) -> float:
    """Bytes of spill stores of one thread: those of innermost loops once per pass."""
    if not report.spill_bytes:
        return 0.0
    inside = _local_bytes(report.loop_sass)
    return max(_local_bytes(report.sass) + inside * (passes - 1), report.spill_bytes / 2 if not inside else 0.0)


def _local_bytes(code: dict[str, int]) -> int:
    wide, double = code.get("STL.128", 0), code.get("STL.64", 0)
    return 4 * code.get("STL", 0) + 12 * wide + 4 * double


def _loaded_footprint(traffic: Traffic) -> float:
    """Distinct bytes loaded. Without a traced figure: what is not stored, or all when loads and stores share memory."""
    if traffic.unique_loaded_bytes is not None:
        return traffic.unique_loaded_bytes
    apart = max(0.0, traffic.unique_bytes - traffic.bytes_stored)
    in_place = apart < 0.05 * min(traffic.bytes_loaded, traffic.unique_bytes)
    return min(traffic.bytes_loaded, traffic.unique_bytes if in_place else apart)


def _own_bytes(traffic: Traffic) -> float:
    """Distinct bytes loaded by one program when that was not traced: a dot's operands are read once per program."""
    each = traffic.bytes_loaded / max(1, traffic.blocks)
    return each if traffic.dot_flops else min(each, _loaded_footprint(traffic) / max(1, traffic.blocks))


def _lost(wave: float | None, target: Target, params: PerfParams) -> float:
    """Share of re-reads that miss the L2: a ramp over what one wave touches."""
    if wave is None:
        return 0.0
    share = wave / target.l2_bytes
    return min(1.0, max(0.0, (share - params.l2_keeps) / (params.l2_loses - params.l2_keeps)))


def _l1_hits(report: LaunchReport, traffic: Traffic, own: float, wave: float | None, params: PerfParams) -> float:
    """Bytes that every program loads alike (weights of a row kernel) and that stay in the L1."""
    if wave is None or not traffic.wave_blocks or traffic.wave_blocks < 2:
        return 0.0
    shared = (own * traffic.wave_blocks - wave) / (traffic.wave_blocks - 1)
    room = params.l1_bytes - report.smem_bytes * report.occupancy.blocks_per_sm
    if not 0 < shared < room / 2:
        return 0.0
    return min(shared * max(1, traffic.blocks), max(0.0, traffic.bytes_loaded - _loaded_footprint(traffic)))


def load_sectors(report: LaunchReport, traffic: Traffic) -> float:
    """Sectors the load/store units serve. Narrow loads of a row deal a lane's 16 bytes out over several requests,
    each of which touches the sectors of all lanes."""
    lanes_bytes = _lane_bytes(report, traffic)
    if traffic.dot_flops or not lanes_bytes:
        return traffic.load_sectors
    per_lane = traffic.tile_bytes_per_round / (report.num_warps * LANES)
    spread = min(_VECTOR_BYTES, max(per_lane, lanes_bytes))
    return max(traffic.load_sectors, traffic.bytes_loaded / SECTOR_BYTES * spread / lanes_bytes)


def _lane_bytes(report: LaunchReport, traffic: Traffic) -> float:
    """Mean width of one lane's global loads in the code that runs most; 0 when nothing is loaded that way."""
    code = report.loop_sass if report.loop_sass.get("load_bytes") else report.sass
    requests = code.get("LDG", 0) + code.get("LDGSTS", 0)
    if not requests:
        return 0.0
    in_code = code.get("load_bytes") or traffic.bytes_loaded / max(1, traffic.blocks) / report.num_warps
    return min(_VECTOR_BYTES, in_code / (LANES * requests))
