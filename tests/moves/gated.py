"""Compare modules in the gate's interpreter job: checked memory, poisoned allocations, a fresh process per module."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from klineage.gate.workers import Zygote

Inputs = tuple[Any, ...]


class Disagree(AssertionError):
    """Two modules give different outputs, or one fails; the message says where."""


@lru_cache(maxsize=1)
def _zygote() -> Zygote:
    zygote = Zygote("interpret")
    atexit.register(zygote.close)
    return zygote


@lru_cache(maxsize=256)
def _outputs(source: str, key: int) -> Any:
    cases = [{"name": str(i), "inputs": list(inputs)} for i, inputs in enumerate(_KEPT[key])]
    result = _zygote().run("klineage.gate.interpreter.jobs:run_job", {"source": source, "cases": cases})
    if not result.ok or result.value is None:
        raise Disagree(f"{result.outcome}: {result.error}\n{result.traceback}")
    return result.value["cases"]


_KEPT: dict[int, Sequence[Inputs]] = {}


def agree(left: str, rights: Sequence[str], cases: Sequence[Inputs], *, tolerance: float = 1e-5) -> None:
    """Raise Disagree unless all modules give the same outputs for every case.

    ``tolerance`` is relative to the largest value of an output; NaN and failures of any kind disagree.
    """
    _KEPT[id(cases)] = cases
    wanted = _outputs(left, id(cases))
    for right in rights:
        for index, (one, other) in enumerate(zip(wanted, _outputs(right, id(cases)), strict=True)):
            for side in (one, other):
                if side["error"]:
                    raise Disagree(f"case {index}: {side['kind']}: {side['error']}\n{right}")
            for a, b in zip(one["outputs"], other["outputs"], strict=True):
                _close(a, b, tolerance, index)


def _close(a: torch.Tensor, b: torch.Tensor, tolerance: float, index: int) -> None:
    if a.dtype != b.dtype or a.shape != b.shape:
        raise Disagree(f"case {index}: {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}")
    wide, reference = b.double(), a.double()
    if torch.isnan(wide).any() or torch.isnan(reference).any():
        raise Disagree(f"case {index}: NaN")
    error = float((wide - reference).abs().max()) if a.numel() else 0.0
    if error > tolerance * max(1.0, float(reference.abs().max()) if a.numel() else 0.0):
        raise Disagree(f"case {index}: off by {error:.3g}")
