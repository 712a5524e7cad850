"""The gate: one judge for every candidate (``klineage.gate.judge.Gate``). See docs/gate.md.

Nothing is imported here, so that a worker process loads only what it needs.
"""
