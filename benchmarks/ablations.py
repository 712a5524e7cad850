"""What each part of a skill is worth: operators taken forward with the skills whole, and with parts taken away.

    python benchmarks/ablations.py matmul softmax layer_norm --target sm_90 --store ablations.db

Prints the gain of each operator over its naive kernel under each ablation, the tries it took and how many the gate
refused, and the geometric means. Without ``--target``, times are measured where a GPU is present. Stopped with Ctrl-C,
it goes on where it was when it is run again with the same store.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

from klineage import api
from klineage.model.optimize import OptimizeReport
from klineage.optimize import Ablation

LEAVES = [a.value for a in Ablation]


def line(report: OptimizeReport) -> dict[str, object]:
    """One cell: gain, gate runs, and those that were not accepted or no faster."""
    judged = [t for t in report.tries if t.verdict is not None]
    return {
        "task": report.task,
        "skills": report.skills,
        "gain": report.speedup,
        "mode": report.mode.value,
        "gated": len(judged),
        "refused": sum(t.decision != "kept" for t in judged),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Gains with parts of the skills taken away.")
    parser.add_argument("tasks", nargs="+", help="operators with a naive kernel")
    parser.add_argument("--target", help="model this one; measured on the GPU when left out")
    parser.add_argument("--store", default="ablations.db", help="verdicts are kept here")
    parser.add_argument("--budget", type=int, default=10, help="most tries")
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of the table")
    given = parser.parse_args()
    cells: dict[tuple[str, str], dict[str, object]] = {}
    for task in given.tasks:
        for left in LEAVES:
            report = api.optimize(
                task, target=given.target, store=given.store, budget=given.budget, ablation=left, jobs=2
            )
            cells[task, left] = line(report)
            print(
                json.dumps(cells[task, left]) if given.json else f"{task} {left}",
                file=sys.stdout if given.json else sys.stderr,
                flush=True,
            )
    if given.json:
        return
    print("| operator | " + " | ".join(LEAVES) + " |")
    print("| --- |" + " ---: |" * len(LEAVES))
    for task in given.tasks:
        found = [cells[task, left] for left in LEAVES]
        print(f"| `{task}` | " + " | ".join(f"×{c['gain']:.2f} ({c['refused']}/{c['gated']})" for c in found) + " |")
    means = [
        math.exp(sum(math.log(float(str(cells[t, left]["gain"]))) for t in given.tasks) / len(given.tasks))
        for left in LEAVES
    ]
    print("| geometric mean | " + " | ".join(f"×{m:.2f}" for m in means) + " |")
    print(f"\n{cells[given.tasks[0], LEAVES[0]]['mode']}; in brackets: tries refused / tries judged")


if __name__ == "__main__":
    main()
