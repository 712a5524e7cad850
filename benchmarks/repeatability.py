"""A kernel timed against itself on this machine's GPU: the ratio must be 1 within its interval.

Usage: python benchmarks/repeatability.py [TASK ...] [--times 3] [--out FILE]

Each kernel is a task's expert, or its naive kernel where it has none, bound twice to the same inputs and timed as a
candidate against an incumbent is (the shortcut for equal instructions is left out). Prints every ratio with its 95%
interval, how many intervals hold 1, and the widest. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from klineage import api
from klineage.gate.measured.judge import MeasuredTaskGate
from klineage.model import CaseRole

TASKS = ("rms_norm", "swiglu", "matmul_epilogue", "softmax")


def against_itself(judge: MeasuredTaskGate, times: int) -> list[dict[str, Any]]:
    """One row per bench case and repetition."""
    kernel = judge.task.expert(judge.gate.target) or judge.task.naive()
    assert kernel is not None
    compiled = judge.captures.of(kernel)
    assert compiled is not None, f"{judge.info.name}: its launches cannot be replayed"
    rows: list[dict[str, Any]] = []
    for case in judge.info.with_role(CaseRole.BENCH):
        program = compiled.programs[case.name]
        for _ in range(times):
            reply = judge._ask_time(  # the one question that times two programs in turn
                case, program, compiled.cubins,
                incumbent=program, incumbent_cubins=compiled.cubins, only_incumbent=True,
            )  # fmt: skip
            low, high = reply["ratio_interval"]
            rows.append(
                {"task": judge.info.name, "case": case.name, "us": reply["us"], "ratio": reply["ratio"], "low": low,
                 "high": high, "width": (high - low) / reply["ratio"], "holds_1": low <= 1.0 <= high,
                 "rounds": reply["rounds"]}
            )  # fmt: skip
    return rows


def main() -> int:
    """Print and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place, api.Session(store=str(Path(place) / "store.db")) as session:
        if str(session.gate.mode) != "measured":
            print("this needs an NVIDIA GPU", file=sys.stderr)
            return 1
        for name in options.tasks:
            judge = session.judge(name)
            assert isinstance(judge, MeasuredTaskGate)
            for row in against_itself(judge, options.times):
                rows.append(row)
                print(
                    f"{row['task']:<18}{row['us']:>9.1f} us{row['ratio']:>9.4f} {row['low']:.4f} to {row['high']:.4f}"
                    f"  width {row['width']:.2%}  {'' if row['holds_1'] else 'without 1'}",
                    flush=True,
                )
    report = {
        "intervals": len(rows),
        "hold 1": sum(r["holds_1"] for r in rows),
        "widest": max(r["width"] for r in rows),
    }
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
