"""Bytes that neither kernels nor watched torch calls wrote, names that were rebound, tuners that spoil their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Run = Callable[..., dict[str, Any]]
HEAD = """import torch, triton
import triton.language as tl

@triton.jit
def copy(xp, op, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(op + i, tl.load(xp + i, mask=i < n), mask=i < n)

"""


def launcher(body: str) -> str:
    return HEAD + "def run(x):\n    o = torch.empty_like(x)\n" + "".join(f"    {line}\n" for line in body.splitlines())


LAUNCH = "copy[(1,)](x, o, 64, B=64)\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("with torch._C.DisableTorchFunction():\n    y = x.exp()\nreturn y", "output 0 was made out of sight"),
        (f"{LAUNCH}with torch._C.DisableTorchFunction():\n    o.mul_(2)\nreturn o", "output 0 was written by neither"),
        (
            f"with torch._C.DisableTorchFunction():\n    x = x.exp()\n{LAUNCH}return o",
            "argument xp was made out of sight",
        ),
        (f"{LAUNCH}o.numpy()[0] = 7\nreturn o", "output 0 was written by neither"),
        (
            "import ctypes\nctypes.memset(o.data_ptr(), 0, 8)\n" + f"{LAUNCH}return o",
            "argument op was written by neither",
        ),
    ],
    ids=["unseen operator", "unseen operator in place", "unseen input", "numpy", "ctypes"],
)
def test_bytes_of_unknown_origin_are_told(run: Run, body: str, says: str) -> None:
    assert says in run(launcher(body), torch.randn(64))["unaccounted"][0]


@pytest.mark.parametrize(
    "body",
    [
        f"{LAUNCH}return o",
        f"x = x.contiguous().to(torch.float64).to(torch.float32)\n{LAUNCH}return o.view(8, 8).t().contiguous()",
        f"o.zero_()\n{LAUNCH}o[:8] = 0\nreturn o",
        f"{LAUNCH}copy[(1,)](o, x.clone(), 64, B=64)\nreturn o.view(2, 32).sum(0)",
    ],
    ids=["a kernel", "moves", "fills", "partial sums"],
)
def test_honest_bytes_are_accounted_for(run: Run, body: str) -> None:
    case = run(launcher(body), torch.randn(64))
    assert (case["error"], case["unaccounted"], case["torch_ops"]) == (None, [], [])


@pytest.mark.parametrize(
    ("body", "flagged"),
    [
        (f"{LAUNCH}return o / o.sum()", "torch.Tensor.div"),
        (f"{LAUNCH}return o.exp()", "torch.Tensor.exp"),
        ("return torch.tensor([v * 2 for v in x.tolist()] * 2)", "torch.tensor"),
    ],
)
def test_work_left_to_torch_after_a_kernel_is_told(run: Run, body: str, flagged: str) -> None:
    assert flagged in run(launcher(body), torch.randn(64))["torch_ops"]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("torch.cuda.Event = 1", "torch.cuda.Event"),
        ("torch.Tensor.extra = 1", "torch.Tensor.extra"),
        ("torch.Tensor.__le__ = 1", "torch.Tensor.__le__"),
        ("torch.set_default_dtype(torch.float64)", "the global default dtype"),
        ("torch.manual_seed(1)", "the global random seed"),
        ("from klineage.gate.interpreter import jobs\njobs._same.__code__ = (lambda a, b: True).__code__",
         "the code of klineage.gate.interpreter.jobs._same"),
        ("import triton.testing\ntriton.testing.do_bench = 1", "triton.testing.do_bench"),
    ],
)  # fmt: skip
def test_a_changed_process_is_told(worker: Any, text: str, changed: str) -> None:
    payload = {
        "source": f"{launcher(LAUNCH + 'return o')}\n{text}\n",
        "cases": [{"name": "a", "inputs": [torch.ones(64)]}],
    }
    assert changed in worker.run("klineage.gate.interpreter.jobs:run_job", payload).value["tampered"]


def test_an_honest_kernel_changes_nothing(worker: Any) -> None:
    payload = {"source": launcher(LAUNCH + "return o"), "cases": [{"name": "a", "inputs": [torch.ones(64)]}]}
    assert worker.run("klineage.gate.interpreter.jobs:run_job", payload).value["tampered"] == []


def test_a_second_look_finds_the_same_addresses(worker: Any) -> None:
    source = launcher(f"{LAUNCH}seen.append(x.data_ptr())\nreturn o, len(set(seen)), len(seen)") + "seen = []\n"
    cases = [
        {"name": "a", "inputs": [torch.zeros(64)]},
        {"name": "a-again", "again": "a", "inputs": [torch.ones(64)]},
    ]
    value = worker.run("klineage.gate.interpreter.jobs:run_job", {"source": source, "cases": cases}).value
    first, second = (case["outputs"] for case in value["cases"])
    assert first[0].eq(0).all() and second[0].eq(1).all()
    assert second[1:] == [1, 2]


TUNED = """import torch, triton
import triton.language as tl

@triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"], RESET)
@triton.jit
def add(xp, op, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(op + i, tl.load(xp + i, mask=i < n), mask=i < n)

def run(x):
    o = torch.zeros_like(x)
    add[lambda meta: (triton.cdiv(64, meta["B"]),)](x, o, 64)
    return o
"""


@pytest.mark.parametrize(("reset", "factor"), [("restore_value=[]", 2.0), ("reset_to_zero=['op']", 1.0)])
def test_tuning_spoils_what_is_not_reset(run: Run, reset: str, factor: float) -> None:
    case = run(TUNED.replace("RESET", reset), torch.ones(64))
    assert case["error"] is None and case["outputs"][0].eq(factor).all()
    assert case["launches"] == 1
