# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Where the bytes of every tensor came from: inputs, watched torch calls or kernels, and nothing else.

Torch calls that the watch does not see (modes switched off, compiled graphs, numpy, ctypes, threads) leave a trace:
a storage that nobody knows, or a known one whose bytes changed on their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, cast

import torch


class Ledger:
    """Check sums of known storages, by address. Holds the storages, so that no address is used twice."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[Any, int]] = {}
        self.faults: list[str] = []

    def note(self, storages: Iterable[Any]) -> list[Any]:
        """The bytes of these are as they should be now; returns the storages whose bytes are not what they were."""
        changed: list[Any] = []
        for storage in storages:
            if storage.nbytes():
                before = self._sums.get(storage.data_ptr())
                now = _check_sum(storage)
                self._sums[storage.data_ptr()] = storage, now
                if before is None or before[1] != now:
                    changed.append(storage)
        return changed

    def check(self, storages: Iterable[Any], what: str) -> None:
        """Record a fault for each of these that nobody made, or that changed since it was noted."""
        for storage in storages:
            if not storage.nbytes():
                continue
            known = self._sums.get(storage.data_ptr())
            if known is None:
                self.faults.append(f"{what} was made out of sight of torch")
            elif known[1] != _check_sum(storage):
                self.faults.append(f"{what} was written by neither a kernel nor a torch call")


def _check_sum(storage: Any) -> int:
    with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
        flat = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage, 0, (storage.nbytes(),), (1,)).numpy()
    return zlib.adler32(cast(Any, flat))
