"""How far the performance model is from the measurements: rank correlation and errors per family of variants.

    python benchmarks/model_error.py [facts.json [measured.json]] [--all]

``facts.json`` comes from ``calibration_facts.py``; without it the recorded ones are taken. ``--all`` prints every
variant with its terms.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from klineage.gate.perf import case_time
from klineage.model import LaunchReport, LaunchTime, Traffic, target

DATA = Path(__file__).with_name("data")
MEASURED = DATA / "h200.json"
FACTS = DATA / "facts_sm_90.json"
_APART = 1.05  # pairs of variants measured closer than this are not counted


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0, ties averaged."""
    order = sorted(values)
    return [order.index(v) + (order.count(v) - 1) / 2 for v in values]


def spearman(measured: Sequence[float], modelled: Sequence[float]) -> float:
    """Spearman's rank correlation; nan below three values."""
    if len(measured) < 3:
        return math.nan
    return statistics.correlation(ranks(measured), ranks(modelled))


def pairs_in_order(measured: Sequence[float], modelled: Sequence[float]) -> tuple[int, int]:
    """(pairs the model orders as measured, pairs measured apart)."""
    right = total = 0
    for i, a in enumerate(measured):
        for j in range(i):
            if max(a, measured[j]) > _APART * min(a, measured[j]):
                total += 1
                right += (a > measured[j]) == (modelled[i] > modelled[j])
    return right, total


def modelled_times(facts_path: Path) -> dict[str, tuple[float, tuple[LaunchTime, ...]]]:
    """Modelled case time and launches of every variant with facts."""
    found: dict[str, tuple[float, tuple[LaunchTime, ...]]] = {}
    for name, facts in json.loads(facts_path.read_text()).items():
        reports = [LaunchReport.model_validate(r) for r in facts["reports"]]
        traffics = [Traffic.model_validate(t) for t in facts["traffic"]]
        found[name] = case_time(reports, traffics, target("sm_90"))
    return found


def line(label: str, families: Sequence[Sequence[tuple[float, float]]]) -> str:
    """One row of the table: count, rank correlation, pairs in order, median and 90th percentile of the error."""
    rows = [row for family in families for row in family]
    measured, modelled = [m for m, _ in rows], [t for _, t in rows]
    errors = sorted(abs(t / m - 1) for m, t in rows)
    counts = [pairs_in_order([m for m, _ in family], [t for _, t in family]) for family in families]
    right, total = sum(r for r, _ in counts), sum(t for _, t in counts)
    p90 = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    order = f"{right}/{total}" if total else "-"
    return (
        f"{label:24s} {len(rows):4d} {spearman(measured, modelled):6.2f} {order:>11s}"
        f" {statistics.median(errors):7.1%} {p90:7.1%}"
    )


def main(facts_path: Path = FACTS, measured_path: Path = MEASURED, every: bool = False) -> None:
    """Print the table."""
    measured = {name: v["us"] for name, v in json.loads(measured_path.read_text())["variants"].items()}
    modelled = modelled_times(facts_path)
    families: dict[str, list[tuple[float, float]]] = {}
    for name, (us, launches) in modelled.items():
        families.setdefault(name.split("/")[0], []).append((measured[name], us))
        if every:
            terms = " | ".join(" ".join(f"{t.name}={t.time_us:.1f}" for t in x.terms) for x in launches)
            print(f"{name:48s} {measured[name]:8.1f} {us:8.1f} {us / measured[name]:5.2f}  {terms}")
    print(f"{'family':24s}    n   rank  pairs right  median  90th %")
    for family, rows in families.items():
        print(line(family, [rows]))
    for label, held in (("fitted", False), ("held out", True)):
        chosen = [rows for family, rows in families.items() if family.startswith("held-") == held]
        if chosen:
            print(line(label, chosen))


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--all"]
    main(*map(Path, arguments), every="--all" in sys.argv)
