# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Where the trusted worker's tensors live; tests put the CPU in the GPU's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

DEVICE = "cuda"


class CudaError(Exception):
    """The driver refused a call; ``sticky`` when the context is lost and the process must end."""

    _STICKY = frozenset({700, 714, 715, 716, 717, 718, 719})  # illegal address, ..., launch failure

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: CUDA error {code}")
        self.sticky = code in self._STICKY


def moved(values: Sequence[Any]) -> list[Any]:
    """The values with tensors copied to the device."""
    return [v.to(DEVICE, copy=True) if isinstance(v, torch.Tensor) else v for v in values]


def wait() -> None:
    """Wait for all streams. Raises CudaError, as for an illegal address, when the context is lost."""
    if DEVICE != "cuda":
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise CudaError(700, " ".join(str(error).split())[:200]) from None
