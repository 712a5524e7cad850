"""Jobs for the interpreting worker that look inside the tracer."""

from __future__ import annotations

from typing import Any


def both_waves(payload: dict[str, Any]) -> dict[str, Any]:
    """Trace twice: programs of a wave together, and one by one."""
    from klineage.gate.interpreter import jobs, traffic

    together = jobs.trace_job(payload)

    def refuse(*_: Any) -> Any:
        raise traffic.Diverged("one by one, please")

    traffic.LaunchTracer._wave_together = refuse
    traffic.MOST_WAVE_PROGRAMS = 1 << 20
    return {"together": together, "apart": jobs.trace_job(payload)}


def took_the_fast_way(payload: dict[str, Any]) -> dict[str, Any]:
    """Trace with the slow way forbidden."""
    from klineage.gate.interpreter import jobs, traffic

    def refuse(*_: Any) -> Any:
        raise RuntimeError("the slow way")

    traffic.LaunchTracer._wave_one_by_one = refuse
    return jobs.trace_job(payload)
