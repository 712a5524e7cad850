"""The dataset card: what the data is, where it comes from, what it must not be used to claim."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .training import Dataset

_WHAT = {
    "sft": "A row is a chat (`messages`): the prompt about a kernel, and as the answer the expert's next optimisation.",
    "preference": (
        "Each row has `prompt`, `chosen` and `rejected`: two answers about one kernel, of which the gate's verdict "
        "prefers the first. `why_rejected` says what the gate said of the other."
    ),
    "rl": (
        "Each row is a transition with its `reward`: `prompt`, `completion`, `label` (reward above 0), and `state`, "
        "`skill`, `conditions`, `next_state`, `status`. A reward of new answers: judge them with `klineage gate`."
    ),
}


def card(data: Dataset) -> str:
    """The card of a dataset as a README with the front matter that dataset hosts read."""
    by_task = Counter(str(row["task"]) for row in data.rows)
    by_move = Counter(str(row["move"]) for row in data.rows)
    provenance = sorted({str(row["provenance"]) for row in data.rows})
    left_out = [f"- {count} {what}" for what, count in sorted(data.left_out.items()) if count]
    return f"""---
pretty_name: KLineage {data.kind}
license: other
task_categories:
- text-generation
tags:
- triton
- gpu-kernels
- {data.kind}
size_categories:
- {_size(len(data.rows))}
configs:
- config_name: default
  data_files: {json.dumps(f"{data.kind}.jsonl")}
---

# KLineage: {data.kind}

The way from naive Triton kernels to expert ones, one validated optimisation at a time. {_WHAT[data.kind]}

- rows: {len(data.rows)}
- tasks: {", ".join(f"{name} ({count})" for name, count in sorted(by_task.items()))}
- moves: {", ".join(f"{name} ({count})" for name, count in sorted(by_move.items()))}
- `level`: 0 is the step next to the expert; the largest is the first one from the naive end. -1: not the expert's own.
- times: {", ".join(provenance)}; `provenance` says it row by row. A modelled time is the performance model's, not a
  measurement.

## Reward

log2 of the speedup over the kernel in the prompt, within -4 and 4; -1 for what the gate does not accept.

## Held out

{", ".join(data.held_out) or "nothing"}. Of these there is no row, no skill that they taught, no effect seen on them,
and no kernel function that they share, whatever its names.

Left out:
{chr(10).join(left_out) or "- nothing"}

## Sources and licences

The kernels are derived from the ones below and stay under their licences.

{chr(10).join(f"- {origin}" for origin in data.origins) or "- unknown"}

## Limits

Verdicts hold for the target and toolchain they were reached with; what the gate cannot see stands in each verdict.
"""


def _size(rows: int) -> str:
    for limit, name in ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K")):
        if rows < limit:
            return name
    return "100K<n<1M"
