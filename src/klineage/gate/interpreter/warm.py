# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false
"""One small kernel through both jobs, for a server that forks: imports, caches and numpy's dispatch are then warm."""

from __future__ import annotations

import torch

from .jobs import run_job, trace_job

_SOURCE = """
import torch, triton
import triton.language as tl

@triton.jit
def warm(x, o, n, eps, B: tl.constexpr):
    r = tl.arange(0, B)
    at = r[:, None] * B + r[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, n):
        v = tl.load(x + at, mask=r[:, None] < B, other=0.0)
        acc = tl.dot(v, v, acc)
    m = tl.max(acc, 1)
    s = tl.sum(tl.exp(acc - m[:, None]), 1) + eps
    tl.store(o + at, (acc / s[:, None]).to(tl.bfloat16), mask=at >= 0)

def run(x):
    o = torch.empty((16, 16), dtype=torch.bfloat16, device=x.device)
    warm[(1,)](x, o, 2, 1e-6, B=16)
    return o
"""


def run_everything() -> None:
    """Run and trace the kernel. Raises RuntimeError when the interpreter does not work in this process."""
    answer = run_job({"source": _SOURCE, "cases": [{"name": "warm", "inputs": [torch.ones(16, 16).half()]}]})
    traced = trace_job({"source": _SOURCE, "inputs": [["tensor", [16, 16], [16, 1], "float16"]]})
    error = answer["cases"][0]["error"] or traced["error"]
    if error:
        raise RuntimeError(f"the interpreter does not work: {error}")
