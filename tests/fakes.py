"""A judge whose verdicts follow from the text, so that walks and searches can be tested without compiling."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from values import environment, launch_report

from klineage.model import (
    Case,
    CaseResult,
    CaseRole,
    CaseTime,
    Kernel,
    Provenance,
    Status,
    Target,
    TaskInfo,
    Tolerance,
    Verdict,
    modelled,
    target,
)

CASES = (
    Case(name="small", params={"n": 31}),
    Case(name="big", params={"n": 4096, "dtype": "fp16"}, role=CaseRole.BENCH),
)


def option(source: str, name: str, default: int) -> int:
    """An integer written as ``name=value`` in the text."""
    found = re.search(rf"\b{name}=(\d+)", source)
    return int(found.group(1)) if found else default


class FakeJudge:
    """``cost`` gives microseconds for a text; ``wrong`` says why a text is not accepted, or ""."""

    def __init__(self, cost: Callable[[str], float], wrong: Callable[[str], str] = lambda _: "") -> None:
        self.cost = cost
        self.wrong = wrong
        self.judged: list[str] = []
        self.stop_after: int | None = None
        self.info = TaskInfo(name="fake", description="", cases=CASES, tolerance=Tolerance(), source_hash="0" * 16)
        self.target: Target = target("sm_90")
        self.mode = Provenance.MODELLED

    def judge(self, kernel: Kernel, incumbent: Verdict | None = None) -> Verdict:
        if self.stop_after is not None and len(self.judged) >= self.stop_after:
            raise KeyboardInterrupt
        self.judged.append(kernel.source)
        why = self.wrong(kernel.source)
        passed = not why
        status = Status.ACCEPTED if passed else Status.REJECTED_NUMERIC
        cost = self.cost(kernel.source)
        if passed and incumbent is not None and incumbent.latency_us and cost > incumbent.latency_us * 1.01:
            status, why = Status.REJECTED_SLOW, "slower"
        return Verdict(
            task="fake",
            task_id=self.info.id,
            kernel=kernel.id,
            status=status,
            reason=why,
            cases=(CaseResult(case="small", passed=passed, error=0.0, allowed=0.1, reason=why),),
            times=(CaseTime(case="big", latency=modelled(cost, "us")),) if passed else (),
            launches=(launch_report(kernel="copy"),),
            environment=environment(),
        )

    def judge_many(self, kernels: Sequence[Kernel]) -> list[Verdict]:
        return [self.judge(k) for k in kernels]

    def check(self, kernel: Kernel, cases: Sequence[Case]) -> Verdict:
        return self.judge(kernel)

    def profile(self, kernel: Kernel, cases: Sequence[Case], target: Target | None = None):
        reports = (launch_report(kernel="copy"),)
        return [(CaseTime(case=c.name, latency=modelled(self.cost(kernel.source), "us")), reports, "") for c in cases]


SOURCE = """import torch
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n)
        tl.store(y_ptr + cols, x, mask=cols < n)


def run(x):
    y = torch.empty_like(x)
    copy[(1,)](x, y, x.numel(), BLOCK=256, num_warps=8, num_stages=3)
    return y
"""


def cost(source: str) -> float:
    """100 us with three stages and eight warps; twice with one stage, 1.5 times with fewer warps."""
    stages = option(source, "num_stages", 3)
    warps = option(source, "num_warps", 4)
    return 100.0 * (2.0 if stages == 1 else 1.0) * (1.5 if warps < 8 else 1.0)
