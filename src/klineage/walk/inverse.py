"""The inverse of a step, derived again from the simpler kernel alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..gate.protocol import Judge
from ..model import Kernel, Verdict
from ..moves import Proposal
from ..propose import Invert, Proposer

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


def rederive(judge: Judge, proposer: Proposer, ask: Invert) -> Inverse:
    """Try the proposer's inverses of ``ask.simpler`` in its own order until one comes within 2%.

    Only the optimised side's *time* is known here, never its text.
    """
    best = Inverse(None, None, None, None, "", 0)
    failures: list[str] = []
    refused: list[str] = []
    count = 0
    for proposal in proposer.inverses(replace(ask, failures=failures)):
        if not isinstance(proposal, Proposal):
            refused.append(proposal.reason)
            continue
        if count == MAX_CANDIDATES:
            break
        count += 1
        kernel = ask.simpler.derive(proposal.source, f"materialize {ask.move}")
        verdict = judge.judge(kernel)
        time_us = verdict.latency_us
        if not verdict.accepted or time_us is None:
            failures.append(f"{verdict.status}: {verdict.reason}")
            continue
        ratio = ask.optimised_us / time_us
        if best.ratio is None or ratio > best.ratio:
            best = Inverse(proposal, kernel, verdict, ratio, "", count)
        if time_us <= ask.optimised_us * WITHIN:
            return best
        failures.append(f"accepted, but reaches only {ratio:.1%} of the wanted speed")
    if not count:
        return replace(best, reason=refused[0] if refused else "the move finds no site for its inverse")
    if best.ratio is None:
        return replace(best, reason=f"no candidate was accepted ({failures[0]})", tried=count)
    return replace(best, reason=f"the best of {count} re-derived kernels reaches {best.ratio:.1%}")
