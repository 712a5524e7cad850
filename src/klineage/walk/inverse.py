"""The inverse of a step, derived again from the simpler kernel alone."""

from __future__ import annotations

from dataclasses import dataclass

from ..gate.protocol import Judge
from ..model import Kernel, Verdict
from ..moves import Proposal
from .propose import materialisations

WITHIN = 1.02  # the re-derived kernel may be this much slower than the optimised side
MAX_CANDIDATES = 12


@dataclass(frozen=True)
class Inverse:
    """The best re-derived kernel, or why there is none. ``ratio`` is optimised time over re-derived time."""

    proposal: Proposal | None
    kernel: Kernel | None
    verdict: Verdict | None
    ratio: float | None
    reason: str
    tried: int


def rederive(judge: Judge, move: str, function: str, simpler: Kernel, optimised_us: float) -> Inverse:
    """Try the move's materialisations of ``simpler`` in the move's own order until one comes within 2%.

    Only the optimised side's *time* is known here, never its text.
    """
    candidates = [p for p in materialisations(move, simpler.source) if isinstance(p, Proposal)]
    candidates.sort(key=lambda p: p.site.function != function)  # same function first, else the move's order
    if not candidates:
        refused = [p.reason for p in materialisations(move, simpler.source) if not isinstance(p, Proposal)]
        return Inverse(None, None, None, None, refused[0] if refused else "the move finds no site for its inverse", 0)
    best = Inverse(None, None, None, None, "", 0)
    failures: list[str] = []
    for count, proposal in enumerate(candidates[:MAX_CANDIDATES], start=1):
        kernel = simpler.derive(proposal.source, f"materialize {move}")
        verdict = judge.judge(kernel)
        time_us = verdict.latency_us
        if not verdict.accepted or time_us is None:
            failures.append(f"{verdict.status}: {verdict.reason}")
            continue
        ratio = optimised_us / time_us
        if best.ratio is None or ratio > best.ratio:
            best = Inverse(proposal, kernel, verdict, ratio, "", count)
        if time_us <= optimised_us * WITHIN:
            return best
    if best.ratio is None:
        return Inverse(None, None, None, None, f"no candidate was accepted ({failures[0]})", len(candidates))
    reason = f"the best of {min(len(candidates), MAX_CANDIDATES)} re-derived kernels reaches {best.ratio:.1%}"
    return Inverse(best.proposal, best.kernel, best.verdict, best.ratio, reason, best.tried)
