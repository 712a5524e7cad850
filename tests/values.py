"""Sample domain values, valid by construction, for tests that need one and not a particular one."""

from __future__ import annotations

from typing import Any

from klineage.model import (
    CaseResult,
    CaseTime,
    Effect,
    Environment,
    Kernel,
    LaunchReport,
    LaunchTime,
    Lineage,
    ModelTerm,
    Occupancy,
    Precondition,
    Provenance,
    Refusal,
    Risk,
    Site,
    SiteKind,
    Skill,
    Standing,
    Status,
    Step,
    Verdict,
    WalkEnd,
    modelled,
)

CONTEXT = "sm_90/fp16/16384x8192"


def kernel(text: str = "def run(x):\n    return x\n", **changes: Any) -> Kernel:
    """A kernel."""
    return Kernel(**{"source": text, "origin": "test", **changes})


def environment(**changes: Any) -> Environment:
    """A modelled environment."""
    values = {"target": "sm_90", "mode": Provenance.MODELLED, "triton": "3.9.0", "torch": "2.13.0"}
    return Environment(**{**values, **changes})


def launch_report(**changes: Any) -> LaunchReport:
    """One compiled launch."""
    values: dict[str, Any] = {
        "kernel": "_rms_norm",
        "grid": (16384, 1, 1),
        "num_warps": 8,
        "num_stages": 3,
        "constexprs": {"BLOCK": "8192"},
        "smem_bytes": 64,
        "registers": 40,
        "spill_bytes": 0,
        "occupancy": Occupancy(blocks_per_sm=6, fraction=0.75, limiter="registers"),
        "sass": {"LDG": 4, "STG": 4, "FFMA": 32, "total": 120},
        "sass_hash": "00ff",
    }
    return LaunchReport(**{**values, **changes})


def launch_time(time_us: float = 135.0) -> LaunchTime:
    """One launch's modelled time with its terms."""
    terms = (
        ModelTerm(name="dram", time_us=time_us, how="537 MB / (4800 GB/s x 0.83)"),
        ModelTerm(name="alu", time_us=20.0, how="1.1e9 lanes / 33 Tlane/s"),
    )
    return LaunchTime(kernel="_rms_norm", time_us=time_us, bound="dram", terms=terms)


def verdict(status: Status = Status.ACCEPTED, time_us: float = 135.0, **changes: Any) -> Verdict:
    """A verdict of any status with the evidence that status needs."""
    passed = status is not Status.REJECTED_NUMERIC
    times = (CaseTime(case="bench", latency=modelled(time_us, "us"), launches=(launch_time(time_us),)),)
    values: dict[str, Any] = {
        "task": "rms_norm",
        "task_id": "t" * 16,
        "kernel": "k" * 16,
        "status": status,
        "reason": "" if status is Status.ACCEPTED else f"sample of {status}",
        "cases": (CaseResult(case="n=257", passed=passed, error=2e-4 if passed else 0.7, allowed=1e-3),),
        "times": times if status in (Status.ACCEPTED, Status.REJECTED_SLOW) else (),
        "launches": (launch_report(),),
        "environment": environment(),
    }
    return Verdict(**{**values, **changes})


def site(**changes: Any) -> Site:
    """A site."""
    values = {"kind": SiteKind.LOOP, "function": "_rms_norm", "line": 12, "start": 100, "end": 140, "text": "for i"}
    return Site(**{**values, **changes})


def effect(optimised_us: float = 135.0, simpler_us: float = 153.0, **changes: Any) -> Effect:
    """A modelled effect."""
    values = {"context": CONTEXT, "optimised_us": optimised_us, "simpler_us": simpler_us}
    return Effect(**{**values, "provenance": Provenance.MODELLED, **changes})


def step(index: int = 0, move: str = "one-pass-row", **changes: Any) -> Step:
    """An accepted step whose inverse was re-derived."""
    values: dict[str, Any] = {
        "index": index,
        "move": move,
        "intent": "keep the row in registers",
        "site": site(),
        "params": {"BLOCK": "8192"},
        "optimised": f"opt{index}",
        "simpler": f"opt{index + 1}",
        "verdict": f"v{index}",
        "effects": (effect(),),
        "inverse_params": {"BLOCK": "8192"},
        "inverse_kernel": f"inv{index}",
        "inverse_verdict": f"w{index}",
        "inverse_ratio": 1.0,
    }
    return Step(**{**values, **changes})


def refusal(**changes: Any) -> Refusal:
    """A refused simplification."""
    values = {"move": "split-k", "kernel": "opt0", "site": "dot@_mm:3", "reason": "no K loop", "kind": "unsupported"}
    return Refusal(**{**values, **changes})


def lineage(steps: tuple[Step, ...] | None = None, **changes: Any) -> Lineage:
    """A walk of two dependent steps and one that commutes."""
    made = steps if steps is not None else (step(0), step(1, "warps"), step(2, "hints"))
    values: dict[str, Any] = {
        "task": "rms_norm",
        "task_id": "t" * 16,
        "expert": "opt0",
        "naive": f"opt{len(made)}",
        "expert_verdict": "v-expert",
        "target": "sm_90",
        "mode": Provenance.MODELLED,
        "steps": made,
        "edges": ((0, 1),) if len(made) > 1 else (),
        "refusals": (refusal(),),
        "end": WalkEnd.NAIVE,
        "expert_us": 135.0,
        "naive_us": 210.0,
    }
    return Lineage(**{**values, **changes})


def skill(name: str = "one-pass-row", **changes: Any) -> Skill:
    """A skill with each kind of precondition."""
    values: dict[str, Any] = {
        "name": name,
        "move": "one-pass-row",
        "intent": "keep the row in registers instead of reading it again",
        "anchors": ("loop", "reduction"),
        "carriers": {"BLOCK": ("4096", "8192")},
        "preconditions": (
            Precondition(predicate="row_fits", args={"max": "65536"}, statement="the row fits in registers",
                         standing=Standing.PROVEN, counterexample="c0ffee"),
            Precondition(predicate="min_columns", args={"n": "512"}, statement="at least 512 columns",
                         standing=Standing.BOUNDED, sweep=(("256", 0.98), ("512", 1.2))),
            Precondition(predicate="dtype_in", statement="a floating type"),
        ),
        "effects": (effect(),),
        "risks": (Risk(what="spills when the row is long", case="n=131072", verdict="bad", kind="slower"),),
        "negative": (effect(10.0, 9.0, context="sm_90/fp16/32x32"),),
        "evidence": tuple(f"{i:016x}" for i in range(12)),
        "sources": ("rms_norm", "softmax"),
        "requires": (),
        "scope": (CONTEXT,),
    }  # fmt: skip
    return Skill(**{**values, **changes})
