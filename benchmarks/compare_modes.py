"""Modelled beside measured: every kernel of measured lineages, profiled again by the performance model.

Usage: python benchmarks/compare_modes.py STORE [--out FILE]

STORE was filled on a GPU (klineage quickstart --store STORE, no --target). Prints each kernel's times, Spearman's
rank correlation over all of them and within each lineage, and of the steps' effects. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from klineage import api
from klineage.gate.measured.stats import spearman
from klineage.model import CaseRole, Lineage, Provenance
from klineage.store import open_store


def rows_of(session: api.Session, line: Lineage) -> list[dict[str, Any]]:
    """One row per kernel of a lineage, from the expert down."""
    judge = session.judge(line.task)
    bench = judge.info.with_role(CaseRole.BENCH)
    rows: list[dict[str, Any]] = []
    names = ["expert", *(s.move for s in line.steps)]
    ids = [line.expert, *(s.simpler for s in line.steps)]
    verdicts = [line.expert_verdict, *(s.verdict for s in line.steps)]
    for name, kernel_id, verdict_id in zip(names, ids, verdicts, strict=True):
        kernel, verdict = session.store.get_kernel(kernel_id), session.store.get_verdict(verdict_id)
        assert kernel is not None and verdict is not None
        times = {t.case: t.latency.value for t in verdict.times}
        for case, (time, _, why) in zip(bench, judge.profile(kernel, bench), strict=True):
            modelled = time.latency.value if time else None
            if modelled is None:
                print(f"{line.task} {name}: no modelled time: {why}", file=sys.stderr)
                continue
            rows.append(
                {"task": line.task, "after": name, "case": case.name, "measured_us": times[case.name],
                 "modelled_us": modelled}
            )  # fmt: skip
    return rows


def main() -> int:
    """Print the table and the correlations."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    store = open_store(options.store)
    lines = {x.task: x for x in store.lineages() if x.mode is Provenance.MEASURED}
    if not lines:
        print("no measured lineage in this store", file=sys.stderr)
        return 1
    rows: list[dict[str, Any]] = []
    with api.Session(next(iter(lines.values())).target, store) as session:
        for line in lines.values():
            rows += rows_of(session, line)
    for r in rows:
        ratio = r["modelled_us"] / r["measured_us"]
        print(f"{r['task']:<18}{r['after']:<24}{r['measured_us']:>10.1f}{r['modelled_us']:>10.1f}{ratio:>7.2f}")
    measured, modelled = [r["measured_us"] for r in rows], [r["modelled_us"] for r in rows]
    report = {
        "kernels": len(rows),
        "spearman": spearman(measured, modelled),
        "spearman by lineage": {
            task: spearman(
                *zip(*((r["measured_us"], r["modelled_us"]) for r in rows if r["task"] == task), strict=True)
            )
            for task in lines
        },
        "median error": statistics.median(abs(b / a - 1) for a, b in zip(measured, modelled, strict=True)),
    }
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
