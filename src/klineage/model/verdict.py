"""Verdicts: a closed set of outcomes, each carrying the evidence it requires."""

from __future__ import annotations

import math
from enum import StrEnum

from pydantic import Field

from .base import Figure, Frozen, Provenance, json_hash


class Status(StrEnum):
    """The closed set of outcomes of the gate."""

    ACCEPTED = "accepted"
    REJECTED_POLICY = "rejected_policy"
    REJECTED_COMPILE = "rejected_compile"
    REJECTED_NUMERIC = "rejected_numeric"
    REJECTED_HACK = "rejected_hack"
    REJECTED_SLOW = "rejected_slow"
    INCONCLUSIVE = "inconclusive"
    INFRA_ERROR = "infra_error"


class Layer(StrEnum):
    """The part of the gate that turned a kernel away."""

    POLICY = "policy"  # its text
    COMPILE = "compile"  # the compiler, ptxas or the device's limits
    RAISED = "raised"  # its own exception while it ran
    LIMITS = "limits"  # its process ended early, hung, or wrote too much
    SANITIZER = "sanitizer"  # an access out of bounds, a race
    WATCH = "watch"  # what it did besides launching kernels: torch, inputs changed, outputs aliased, patches
    COMPARISON = "comparison"  # form or values of its outputs
    AGREEMENT = "agreement"  # it launched other kernels when compiled than when run
    BENCH = "bench"  # less work at the bench shapes than the answer needs


class Occupancy(Frozen):
    """Resident blocks per SM, resident warps over the maximum (0..1), and what limits them."""

    blocks_per_sm: int
    fraction: float
    limiter: str


class LaunchReport(Frozen):
    """What one compiled launch is made of: read from the cubin, nothing modelled."""

    kernel: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    num_ctas: int = 1
    constexprs: dict[str, str] = {}
    arg_types: tuple[str, ...] = ()  # "name:*fp16/16" (type, divisibility)
    config: str | None = None  # autotune configuration in force
    smem_bytes: int
    registers: int
    spill_bytes: int
    stack_bytes: int = 0
    occupancy: Occupancy
    sass: dict[str, int]  # instruction mix; "total" counts all
    sass_hash: str  # hash of the normalised SASS
    # the part of ``sass`` in innermost loops, with "loops" (their number) and, for one warp passing once through
    # each of them, "mma_flops" and "load_bytes"; empty without loops
    loop_sass: dict[str, int] = {}
    compile_s: float | None = None
    line: int = 0  # where the kernel is defined in the module's text

    @property
    def blocks(self) -> int:
        """Programs launched."""
        return self.grid[0] * self.grid[1] * self.grid[2]


class Traffic(Frozen):
    """What one launch does, traced in the interpreter on sampled programs and scaled to the grid.

    All counts are totals for the launch. ``sampled`` of ``blocks`` programs were run.
    """

    blocks: int
    sampled: int
    bytes_loaded: float  # requested by loads, masked lanes excluded
    bytes_stored: float
    bytes_atomic: float = 0.0
    unique_bytes: float  # footprint of the launch (least DRAM traffic)
    unique_loaded_bytes: float | None = None  # the part of it that is loaded
    unique_stored_bytes: float | None = None  # the part of it that is stored or updated
    program_unique_bytes: float | None = None  # distinct bytes one program loads, on average
    wave_unique_bytes: float | None = None  # distinct bytes touched by one wave of programs, when traced
    wave_blocks: int | None = None  # programs in that wave
    waves: float | None = None  # waves one after another; a persistent program's outer trips count as waves
    load_requests: float  # warp-level requests (32 lanes)
    load_sectors: float  # 32-byte sectors those requests touch
    store_requests: float
    store_sectors: float
    dot_flops: dict[str, float] = {}  # by operand type: "fp16", "bf16", "tf32", "fp32-ieee", "fp8", "int8"
    alu_lanes: float = 0.0  # elementwise operations, counted in lanes
    mufu_lanes: float = 0.0  # exp, log, sqrt, rsqrt, sin, tanh ... in lanes
    reduce_lanes: float = 0.0
    reductions: float = 0.0  # block-wide reductions and scans, per program
    load_rounds: float = 1.0  # per program: load operations executed one after another (trip counts included)
    loop_trips: float = 0.0  # per program: iterations of innermost loops
    tile_bytes_per_round: float = 0.0  # bytes one program loads per round


class ModelTerm(Frozen):
    """One term of the performance model, in microseconds, with the arithmetic that a person can argue with."""

    name: str
    time_us: float
    how: str


class LaunchTime(Frozen):
    """A launch's time and the terms it was made of. ``bound`` names the term that decides."""

    kernel: str
    time_us: float
    bound: str
    terms: tuple[ModelTerm, ...]


class CaseResult(Frozen):
    """Correctness of one case. ``error`` and ``allowed`` are relative to the reference row maximum."""

    case: str
    passed: bool
    error: float | None = None
    allowed: float | None = None
    reason: str = ""


class CaseTime(Frozen):
    """Performance of one bench case."""

    case: str
    latency: Figure  # us
    launches: tuple[LaunchTime, ...] = ()
    interval_us: tuple[float, float] | None = None  # bootstrap interval when measured
    clock_mhz: tuple[int, int] | None = None  # of SMs and memory, just after timing
    vendor_us: dict[str, float] = {}
    roofline_us: float | None = None  # the floor from the work model


class Environment(Frozen):
    """What a verdict was reached with."""

    target: str
    mode: Provenance
    triton: str
    torch: str
    ptxas: str = ""
    python: str = ""
    device: str = ""
    driver: str = ""
    klineage: str = ""
    model: str = ""  # version of the performance model

    @property
    def fingerprint(self) -> str:
        """Hash used in the verdict cache's key."""
        return json_hash(self.model_dump(mode="json"))


class Verdict(Frozen):
    """The gate's judgement of one kernel on one task.

    ``accepted`` and ``rejected_slow`` cannot be built without passed cases and a time for every bench case;
    ``rejected_numeric`` not without a failed case; every other rejection not without a reason.
    """

    task: str
    task_id: str
    kernel: str
    status: Status
    reason: str = ""
    cases: tuple[CaseResult, ...] = ()
    times: tuple[CaseTime, ...] = ()
    launches: tuple[LaunchReport, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    blind_spots: tuple[str, ...] = ()  # what this mode cannot see
    seeds: tuple[int, ...] = ()
    environment: Environment
    incumbent: str | None = None
    layer: Layer | None = None  # what turned it away
    launched_by: str = ""  # measured: "trusted" (captured launches replayed) or "child" (its own, confined process)
    judge_s: float = Field(default=0.0, ge=0)

    def model_post_init(self, context: object, /) -> None:
        timed = self.status in (Status.ACCEPTED, Status.REJECTED_SLOW)
        if timed and (not self.cases or not all(c.passed for c in self.cases)):
            raise ValueError(f"{self.status} needs cases, all passed")
        if timed and (not self.times or any(t.latency.value is None for t in self.times)):
            raise ValueError(f"{self.status} needs a time for every bench case")
        if self.status is Status.REJECTED_NUMERIC and all(c.passed for c in self.cases):
            raise ValueError("rejected_numeric needs the failed case")
        if not timed and not self.reason:
            raise ValueError(f"{self.status} needs a reason")

    @property
    def id(self) -> str:
        """Content hash of the judgement (without how long judging took)."""
        return json_hash(self.model_dump(mode="json", exclude={"judge_s"}))

    @property
    def accepted(self) -> bool:
        """True when the gate accepted the kernel."""
        return self.status is Status.ACCEPTED

    @property
    def mode(self) -> Provenance:
        """Whether the times are measured or modelled."""
        return self.environment.mode

    @property
    def latency_us(self) -> float | None:
        """Geometric mean over the bench cases, or None when there is no time."""
        return _mean([t.latency.value for t in self.times])

    @property
    def vendor_us(self) -> float | None:
        """The fastest vendor of each bench case, geometric mean; None unless every case has one timed."""
        return _mean([min(t.vendor_us.values(), default=None) for t in self.times])


def speedup_interval(optimised: CaseTime, simpler: CaseTime) -> tuple[float, float] | None:
    """The 95% interval of simpler over optimised, from the intervals of two times whose errors are independent; None
    where either was not measured."""
    if optimised.interval_us is None or simpler.interval_us is None:
        return None
    mine, its = optimised.latency.value, simpler.latency.value
    if not mine or not its:
        return None
    down = math.hypot(math.log(its / simpler.interval_us[0]), math.log(optimised.interval_us[1] / mine))
    up = math.hypot(math.log(simpler.interval_us[1] / its), math.log(mine / optimised.interval_us[0]))
    return its / mine * math.exp(-down), its / mine * math.exp(up)


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v]
    if not known or len(known) != len(values):
        return None
    product = 1.0
    for value in known:
        product *= value ** (1.0 / len(known))
    return product
