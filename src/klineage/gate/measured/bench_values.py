# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Inputs of the bench cases, in several sets, and what outputs on them must be: timed calls are looked at too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...model import Case, json_hash
from ...task import Task
from ...task.tolerance import allowed_error, row_errors
from . import device
from .replay import Buffer

_SETS = 3  # of a bench case's inputs, at other addresses and with other values
_KEPT = 6  # bench cases whose inputs are kept
_MOST_BYTES = 24 << 30  # of the sets of one case
_SHARE = 8  # of the device's memory: one part in so many
_ROW = 1 << 16
_SLAB = 1 << 24  # elements that are widened at once


@dataclass(frozen=True)
class _Expected:
    """Outputs in fp32; the error of the reference in the case's own dtype against them, and its dtypes, by output."""

    outputs: list[torch.Tensor]
    own_errors: list[float]
    dtypes: list[torch.dtype]


class BenchValues:
    """Sets of inputs by task and case, on the host, with the reference's answers on the device."""

    def __init__(self, memory_bytes: int) -> None:
        self._most_bytes = min(_MOST_BYTES, memory_bytes // _SHARE)
        self._sets: dict[str, list[list[Any]]] = {}
        self._expected: dict[str, dict[int, _Expected]] = {}

    def sets(self, task: Task, case: Case) -> list[list[Any]]:
        """Up to three sets of a case's inputs."""
        key = _key(task, case)
        if key not in self._sets:
            if len(self._sets) >= _KEPT:
                oldest = next(iter(self._sets))
                del self._sets[oldest]
                self._expected.pop(oldest, None)
            first = list(task.make_inputs(case))
            size = sum(v.untyped_storage().nbytes() for v in first if isinstance(v, torch.Tensor))
            sets = [first]
            while len(sets) < _SETS and size * (len(sets) + 1) <= self._most_bytes:
                sets.append([other_values(v, len(sets)) for v in first])
            self._sets[key] = sets
        return self._sets[key]

    def wrong(self, task: Task, case: Case, outputs: Sequence[torch.Tensor], number: int) -> str:
        """What is wrong with outputs (on the device) for the set of that number, or ""."""
        expected = self._expect(task, case, number)
        forms = [(e.shape, n) for e, n in zip(expected.outputs, expected.dtypes, strict=True)]
        if [(o.shape, o.dtype) for o in outputs] != forms:
            return f"case {case.name}: outputs of another form than the reference's"
        for index, (got, wanted) in enumerate(zip(outputs, expected.outputs, strict=True)):
            if not wanted.is_floating_point():
                if not torch.equal(got, wanted):
                    return f"case {case.name}: integer values of a timed call differ"
                continue
            allowed = allowed_error(task, case, got.dtype, expected.own_errors[index])
            error = float(_errors(got, wanted).max())
            if not error <= allowed:
                return f"case {case.name}: a timed call's error is {error:.3g}, allowed {allowed:.3g}"
        return ""

    def _expect(self, task: Task, case: Case, number: int) -> _Expected:
        known = self._expected.setdefault(_key(task, case), {})
        if number not in known:
            placed = device.moved(self.sets(task, case)[number])
            raised = [v.float() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in placed]
            with torch.no_grad():
                native, exact = listed(task.reference(*placed)), listed(task.reference(*raised))
            own = [
                float(_errors(n, e).max()) if n.is_floating_point() else 0.0 for n, e in zip(native, exact, strict=True)
            ]
            known[number] = _Expected(exact, own, [n.dtype for n in native])
        return known[number]


class Seal:
    """Sums over buffers' bytes with secret weights, to see later whether they are what they were."""

    def __init__(self) -> None:
        self._across, self._down = (
            torch.randint(-(2**62), 2**62, (_ROW,), device=device.DEVICE, dtype=torch.int64) * 2 + 1 for _ in range(2)
        )

    def of(self, buffers: Mapping[str, Buffer]) -> dict[str, int]:
        """One number for each buffer."""
        return {name: self._sum(buffer.content()) for name, buffer in buffers.items()}

    def _sum(self, content: torch.Tensor) -> int:
        words = content[: content.numel() // 4 * 4].view(torch.int32)
        total = torch.zeros((), dtype=torch.int64, device=content.device)
        for start in range(0, words.numel(), _SLAB):
            total = 3 * total + self._rows(words[start : start + _SLAB])
        rest = content[words.numel() * 4 :].long()
        return int(3 * total + (rest * self._across[: rest.numel()]).sum())

    def _rows(self, words: torch.Tensor) -> torch.Tensor:
        whole = words.numel() // _ROW * _ROW
        rows = (words[:whole].view(-1, _ROW).long() * self._across).sum(1)
        last = words[whole:].long()
        return (rows * self._down[: rows.numel()]).sum() + (last * self._down[: last.numel()]).sum()


def other_values(value: Any, number: int) -> Any:
    """Other values of the same kind and layout: real ones rolled along by some rows; integers stay, launchers plan
    with them."""
    if not isinstance(value, torch.Tensor):
        return value
    same = torch.empty(0, dtype=value.dtype)
    same.set_(value.untyped_storage().clone(), value.storage_offset(), value.shape, value.stride())
    shared = any(step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True))
    if value.dim() and value.is_floating_point() and not shared:
        same.copy_(value.roll(number, 0))
    return same


def listed(result: Any) -> list[torch.Tensor]:
    """A reference's outputs as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def _errors(got: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Largest relative error per row, a slab of rows at a time."""
    rows = got.reshape(-1, got.shape[-1]) if got.dim() > 1 else got.reshape(1, -1)
    against = wanted.reshape(rows.shape)
    slab = max(1, (1 << 26) // max(1, rows.shape[1]))
    parts = [row_errors(rows[i : i + slab], against[i : i + slab], got.dtype) for i in range(0, rows.shape[0], slab)]
    return torch.nan_to_num(torch.cat(parts), nan=math.inf)


def _key(task: Task, case: Case) -> str:
    return f"{task.id}/{json_hash(case.model_dump(mode='json'))}"
