"""What counts as a time, and under what key verdicts and rates are kept."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest
from stand_in import FACTS, PEAKS

from klineage.gate.environment import measured_environment
from klineage.gate.measured import peaks
from klineage.gate.measured.clocks import Clocks
from klineage.gate.measured.figures import case_time
from klineage.model import Case, CaseTime, Work, target

CASE = Case(name="bench", params={"dtype": "fp16"})
GB = 1 << 30


def reply(us: float, **more: Any) -> dict[str, Any]:
    return {"us": us, "interval": [us * 0.99, us * 1.01], "vendors": {"torch": 2 * us}, **more}


def timed(us: float, work: Work, case: Case = CASE, bounded: bool = True) -> CaseTime | str:
    return case_time(case, reply(us), work, bounded, FACTS, PEAKS)


# 1 GiB less the L2 (50 MiB) at 4000 GB/s takes 255 us; 1e11 flops at 700 TFLOP/s take 143 us
@pytest.mark.parametrize(
    ("us", "work"),
    [(240.0, Work(flops=0, bytes=GB)), (130.0, Work(flops=1e11, bytes=0)), (1.0, Work(flops=1e11, bytes=GB))],
    ids=["bandwidth", "arithmetic", "both"],
)
def test_faster_than_the_device_can_be_is_invalid(us: float, work: Work):
    found = timed(us, work)
    assert isinstance(found, str)
    assert "invalid, not fast" in found


@pytest.mark.parametrize(
    ("us", "work"),
    [(244.0, Work(flops=0, bytes=GB)), (137.0, Work(flops=1e11, bytes=0)), (5.0, Work(flops=0, bytes=40 << 20))],
    ids=["within 5% of the bandwidth", "within 5% of the rate", "what fits in the L2"],
)
def test_at_the_roofline_is_a_time(us: float, work: Work):
    found = timed(us, work)
    assert isinstance(found, CaseTime)
    assert found.latency.value == us


def test_narrow_types_run_at_twice_the_rate():
    work = Work(flops=1e11, bytes=0)
    assert isinstance(timed(80.0, work), str)
    assert isinstance(timed(80.0, work, Case(name="bench", params={"dtype": "fp8e4m3"})), CaseTime)


def test_work_that_torch_counted_bounds_nothing():
    assert isinstance(timed(1.0, Work(flops=1e12, bytes=GB), bounded=False), CaseTime)


def test_a_time_carries_interval_vendor_floor_and_clocks():
    found = case_time(CASE, reply(300.0, clock_mhz=[1980, 3201]), Work(flops=0, bytes=GB), True, FACTS, PEAKS)
    assert isinstance(found, CaseTime)
    assert found.interval_us == (297.0, 303.0)
    assert found.vendor_us == {"torch": 600.0}
    assert found.roofline_us == pytest.approx(GB / 4e6)
    assert found.clock_mhz == (1980, 3201)


@pytest.mark.parametrize(
    "changed", ["name", "sms", "driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit", "cuda"]
)
def test_a_verdict_of_another_device_is_not_taken_for_this_ones(changed: str):
    one = measured_environment(target("sm_90"), FACTS)
    other = measured_environment(target("sm_90"), {**FACTS, changed: "other"})
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == measured_environment(target("sm_90"), dict(FACTS)).fingerprint
    assert one.fingerprint != measured_environment(target("sm_100"), FACTS).fingerprint


@pytest.mark.parametrize("changed", ["uuid", "driver_version", "clocks.max.mem", "torch", "l2_bytes"])
def test_rates_are_measured_again_on_another_device(changed: str):
    assert peaks.peaks_key(FACTS) != peaks.peaks_key({**FACTS, changed: "other"})


def test_rates_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    measured: list[Any] = []
    monkeypatch.setattr(peaks, "_measure", lambda clock: measured.append(clock) or dict(PEAKS))
    assert peaks.peaks(None, FACTS, tmp_path) == PEAKS  # type: ignore[arg-type]
    assert peaks.peaks(None, FACTS, tmp_path) == PEAKS  # type: ignore[arg-type]
    assert len(measured) == 1
    (kept,) = (tmp_path / "peaks").iterdir()
    assert json.loads(kept.read_text())["device"]["name"] == "Stand-in"
    kept.write_text("{")
    assert peaks.peaks(None, FACTS, tmp_path) == PEAKS  # type: ignore[arg-type]
    assert len(measured) == 2


class Nvml:
    """An NVML that knows one device and, when told so, no clocks."""

    def __init__(self, clocks: dict[int, int]) -> None:
        self.clocks = clocks

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        return 0 if uuid == b"GPU-1" else 6

    def nvmlDeviceGetClockInfo(self, handle: ctypes.c_void_p, kind: int, value: Any) -> int:
        if kind not in self.clocks:
            return 3
        ctypes.cast(value, ctypes.POINTER(ctypes.c_uint))[0] = self.clocks[kind]
        return 0


@pytest.mark.parametrize(
    ("uuid", "library", "expected"),
    [
        ("GPU-1", Nvml({1: 1980, 2: 3201}), (1980, 3201)),
        ("GPU-2", Nvml({1: 1980, 2: 3201}), None),
        ("GPU-1", Nvml({1: 1980}), None),
        ("GPU-1", object(), None),
    ],
    ids=["clocks", "another device", "refuses", "too old"],
)
def test_clocks_are_read_where_the_driver_tells_them(uuid: str, library: Any, expected: tuple[int, int] | None):
    clocks = Clocks(uuid, library)
    assert clocks.read() == expected
    assert clocks.read() == expected
