"""The performance model: refusals, properties of its terms, orderings measured on an H200."""

from __future__ import annotations

import importlib
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from klineage.errors import HarnessError
from klineage.gate.perf import case_time, launch_time
from klineage.gate.perf_params import params_for
from klineage.model import TARGETS, LaunchReport, Occupancy, Traffic, target

FACTS = Path(__file__).with_name("data") / "perf_facts_sm_90.json"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
H200 = target("sm_90")

# us measured on an H200, fastest first: the model must give the same order
MATMUL = {
    "matmul-4096/128x256x64-s3-w8": 206,
    "matmul-4096/128x256x64-s1-w8": 434,
    "matmul-4096/64x64x32-s1-w4": 633,
    "matmul-4096/32x32x32-s1-w4": 1598,
    "matmul-4096/ieee-32x32x32-s1-w4": 5946,
}
RMSNORM = {
    "rmsnorm-8192/one-w8": 134,
    "rmsnorm-8192/two-4096-w4": 152,
    "rmsnorm-8192/two-1024-w4": 171,
    "rmsnorm-8192/two-256-w4": 204,
}


def report(**changes: Any) -> LaunchReport:
    """A memory-bound elementwise launch of 8192 programs."""
    facts: dict[str, Any] = {
        "kernel": "k",
        "grid": (8192, 1, 1),
        "num_warps": 4,
        "num_stages": 3,
        "smem_bytes": 0,
        "registers": 32,
        "spill_bytes": 0,
        "occupancy": Occupancy(blocks_per_sm=16, fraction=1.0, limiter="threads"),
        "sass": {"total": 60, "LDG": 2, "LDG.128": 2},
        "sass_hash": "0",
    }
    return LaunchReport.model_validate(facts | changes)


def traffic(**changes: Any) -> Traffic:
    """What it moves: 16 KiB in and 16 KiB out per program, all distinct."""
    size = 8192.0 * 16384
    facts: dict[str, Any] = {
        "blocks": 8192,
        "sampled": 16,
        "bytes_loaded": size,
        "bytes_stored": size,
        "unique_bytes": 2 * size,
        "unique_loaded_bytes": size,
        "program_unique_bytes": 16384.0,
        "wave_unique_bytes": 2112 * 32768.0,
        "wave_blocks": 2112,
        "load_requests": size / 64,
        "load_sectors": size / 32,
        "store_requests": size / 64,
        "store_sectors": size / 32,
        "tile_bytes_per_round": 16384.0,
    }
    return Traffic.model_validate(facts | changes)


def recorded(name: str) -> tuple[list[LaunchReport], list[Traffic]]:
    """Facts of one calibration variant as the compile and trace jobs gave them."""
    facts = json.loads(FACTS.read_text())[name]
    reports = [LaunchReport.model_validate(r) for r in facts["reports"]]
    return reports, [Traffic.model_validate(t) for t in facts["traffic"]]


# ------------------------------------------------------------------------------------------------------- refusals


def test_refuses_launches_without_their_traffic():
    with pytest.raises(HarnessError, match="2 compiled launches but 1 traced"):
        case_time([report(), report()], [traffic()], H200)


def test_no_launch_takes_no_time():
    assert case_time([], [], H200) == (0.0, ())


# ----------------------------------------------------------------------------------------------- one term at a time


def time_of(reported: LaunchReport, traced: Traffic) -> float:
    return launch_time(reported, traced, H200).time_us


def test_memory_bound_launch_runs_at_the_measured_copy_bandwidth():
    found = launch_time(report(), traffic(), H200)
    assert found.bound == "dram"
    assert 2 * 8192 * 16384 / found.time_us / 1e3 == pytest.approx(4283, rel=0.1)  # GB/s, a copy on an H200


@pytest.mark.parametrize(
    ("reported", "traced"),
    [
        pytest.param({}, {"bytes_loaded": 8e8, "unique_loaded_bytes": 8e8, "unique_bytes": 1e9}, id="more bytes"),
        pytest.param({"spill_bytes": 800}, {}, id="spills"),
        pytest.param({"sass": {"total": 6000}}, {}, id="more instructions"),
        pytest.param({}, {"mufu_lanes": 2e9}, id="special functions"),
        pytest.param({}, {"load_sectors": 1e9}, id="uncoalesced loads"),
        pytest.param({}, {"load_rounds": 64.0}, id="loads one after another"),
        pytest.param({}, {"reductions": 300.0}, id="reductions"),
        pytest.param({}, {"dot_flops": {"fp32-ieee": 1e10}}, id="dots without tensor cores"),
        pytest.param({"sass": {"total": 60, "LDG": 128}}, {}, id="byte-wide loads"),
    ],
)
def test_more_work_costs_more(reported: dict[str, Any], traced: dict[str, Any]):
    assert time_of(report(**reported), traffic(**traced)) > 1.05 * time_of(report(), traffic())


def test_rereads_of_a_wave_that_fits_the_l2_are_cheap():
    twice = {"bytes_loaded": 2 * 8192.0 * 16384}
    fits = time_of(report(), traffic(**twice, wave_blocks=264, wave_unique_bytes=264 * 32768.0))
    spills = time_of(report(), traffic(**twice, wave_unique_bytes=2112 * 65536.0))
    assert spills > 1.2 * fits


def test_few_programs_leave_sms_idle():
    dots = {"dot_flops": {"fp16": 1e12}}
    tensor = {"sass": {"total": 60, "HGMMA": 4}}
    even = time_of(report(**tensor), traffic(**dots, blocks=132))
    uneven = time_of(report(**tensor), traffic(**dots, blocks=133))
    assert 1.6 * even < uneven < 2 * even


def test_pipelined_loads_hide_latency():
    rounds = {"load_rounds": 512.0, "tile_bytes_per_round": 32.0, "dot_flops": {"fp16": 1e9}}
    waiting = time_of(report(sass={"total": 60, "LDG": 2}), traffic(**rounds))
    ahead = time_of(report(sass={"total": 60, "LDGSTS": 2}), traffic(**rounds))
    assert ahead < 0.8 * waiting


def test_uncountable_programs_are_bound_by_handing_them_out():
    found = launch_time(report(), traffic(blocks=2_000_000, wave_unique_bytes=None), H200)
    assert found.bound == "program_launch"


def test_missing_footprints_are_derived():
    bare = traffic(unique_loaded_bytes=None, program_unique_bytes=None, wave_unique_bytes=None, wave_blocks=None)
    assert time_of(report(), bare) == pytest.approx(time_of(report(), traffic()), rel=0.02)


def test_loads_in_place_count_as_reads_and_writes():
    size = 8192.0 * 16384
    known = traffic(unique_bytes=size)
    derived = traffic(unique_bytes=size, unique_loaded_bytes=None)
    assert time_of(report(), derived) == pytest.approx(time_of(report(), known))


# --------------------------------------------------------------------------------------------------- explanation


def test_every_term_shows_arithmetic_that_gives_its_time():
    reports, traffics = recorded("matmul-4096/32x32x32-s1-w4")
    (launch,) = case_time(reports, traffics, H200)[1]
    assert len({t.name for t in launch.terms}) == len(launch.terms)
    for term in launch.terms:
        if term.name != "launch":
            assert term.how.split("; ")[0].endswith(f"= {term.time_us:.1f} us"), term.how


def test_the_time_lies_between_the_largest_term_and_the_sum():
    reports, traffics = recorded("rmsnorm-8192/two-256-w4")
    (launch,) = case_time(reports, traffics, H200)[1]
    times = {t.name: t.time_us for t in launch.terms}
    assert launch.bound in times
    assert times["launch"] + times[launch.bound] <= launch.time_us <= sum(times.values())


def test_a_case_is_its_launches_and_one_start():
    once, (launch,) = case_time([report()], [traffic()], H200)
    twice, launches = case_time([report()] * 2, [traffic()] * 2, H200)
    assert once == launch.time_us + params_for(H200).call_us
    assert launches == (launch, launch)
    assert twice == once + launch.time_us


# ------------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_gives_a_finite_time_and_says_whether_it_is_fitted(name: str):
    where = target(name)
    found = launch_time(report(), traffic(), where)
    floor = 2 * 8192 * 16384 / where.dram_gbps / 1e3
    assert floor < found.time_us < 2 * floor + 5
    assert math.isfinite(found.time_us)
    assert params_for(where).fitted == (name == "sm_90")


# --------------------------------------------------------------------------------------- orderings measured on H200


@pytest.mark.parametrize("measured", [pytest.param(MATMUL, id="matmul"), pytest.param(RMSNORM, id="rmsnorm")])
def test_recorded_facts_come_out_in_the_measured_order(measured: dict[str, float]):
    modelled = {name: case_time(*recorded(name), H200)[0] for name in measured}
    assert sorted(modelled, key=modelled.__getitem__) == sorted(measured, key=measured.__getitem__)
    for name, us in measured.items():
        assert modelled[name] == pytest.approx(us, rel=0.35), name


@pytest.mark.parametrize(
    ("held", "least_in_order", "most_error"),
    [pytest.param(False, 0.94, 0.07, id="fitted"), pytest.param(True, 0.92, 0.09, id="held out")],
)
def test_ranks_the_calibration_kernels_as_measured(
    held: bool, least_in_order: float, most_error: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    tools = importlib.import_module("model_error")
    measured = {n: v["us"] for n, v in json.loads(tools.MEASURED.read_text())["variants"].items()}
    modelled = {n: us for n, (us, _) in tools.modelled_times(tools.FACTS).items() if n.startswith("held-") == held}
    assert len(modelled) == (46 if held else 191)
    assert tools.spearman([measured[n] for n in modelled], list(modelled.values())) > 0.95
    assert statistics.median(abs(us / measured[n] - 1) for n, us in modelled.items()) < most_error
    right = total = 0
    for family in {n.split("/")[0] for n in modelled}:
        names = [n for n in modelled if n.split("/")[0] == family]
        counts = tools.pairs_in_order([measured[n] for n in names], [modelled[n] for n in names])
        right, total = right + counts[0], total + counts[1]
    assert right > least_in_order * total


@pytest.mark.slow
@pytest.mark.parametrize("measured", [pytest.param(MATMUL, id="matmul"), pytest.param(RMSNORM, id="rmsnorm")])
def test_compiled_and_traced_facts_come_out_in_the_measured_order(
    measured: dict[str, float], monkeypatch: pytest.MonkeyPatch
):
    from klineage.gate.workers import Zygote

    monkeypatch.syspath_prepend(str(BENCHMARKS))
    calibration = importlib.import_module("calibration_facts")
    variants = {v.name: v for v in sys.modules["calibration_variants"].variants()}
    modelled: dict[str, float] = {}
    with Zygote("compile") as compiler, Zygote("interpret") as interpreter:
        for name in measured:
            reports, traffics = calibration.facts(variants[name], compiler, interpreter, H200)
            modelled[name] = case_time(reports, traffics, H200)[0]
    assert sorted(modelled, key=modelled.__getitem__) == sorted(measured, key=measured.__getitem__)
