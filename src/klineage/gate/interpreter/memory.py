# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""The buffers a launch may touch, and exact checks of every address.

A buffer is the whole storage of a tensor argument, or of any tensor the job knows when a kernel reaches it through
a pointer in memory. Addresses outside every buffer raise ``OutOfBounds``; so do misaligned ones.
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .formats import Array, unsigned


class KernelFault(BaseException):
    """A memory fault found while a kernel ran.

    Not an ``Exception``: a candidate's ``except Exception`` must not turn the fault into a fallback.
    """

    kind = "exception"


class OutOfBounds(KernelFault):
    """A load, store or atomic outside every buffer."""

    kind = "out_of_bounds"


class Buffer:
    """One storage: ``low`` to ``high`` are its byte addresses."""

    def __init__(self, storage: Any, label: str) -> None:
        self.storage = storage  # kept alive while the launch runs
        self.low: int = storage.data_ptr()
        self.size: int = storage.nbytes()
        self.high = self.low + self.size
        self.label = label
        self.span = (self.size, 0)  # first and last byte that some argument's view can reach
        self.written = False
        self.writers: dict[int, Array] = {}
        self.readers: dict[int, Array] = {}
        self._views: dict[int, Array] = {}

    def view(self, itemsize: int) -> Array:
        """The content as unsigned integers of ``itemsize`` bytes (a rest at the end is left out)."""
        view = self._views.get(itemsize)
        if view is None:
            raw = np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.low))
            view = raw[: self.size // itemsize * itemsize].view(unsigned(itemsize))
            self._views[itemsize] = view
        return view

    def marks(self, table: dict[int, Array], itemsize: int) -> Array:
        """An int32 per element, -1 where nobody has been."""
        found = table.get(itemsize)
        if found is None:
            found = table[itemsize] = np.full(self.size // itemsize, -1, dtype=np.int32)
        return found


def tensors_in(values: Iterable[Any]) -> Iterator[Any]:
    """Every torch tensor among arguments: plain, in tuples, behind tensor descriptors and wrappers."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from tensors_in(value)
        elif hasattr(value, "untyped_storage"):
            yield value
        elif hasattr(value, "base") and not callable(value.base):
            yield from tensors_in((value.base,))


class Memory:
    """Finds the buffer of an address. One per launch."""

    def __init__(self, arguments: dict[str, Any], known: Iterable[Any] = ()) -> None:
        self._buffers: dict[int, Buffer] = {}
        self._lows: list[int] = []
        self._known = known
        self._last: Buffer | None = None
        for name, value in arguments.items():
            for tensor in tensors_in((value,)):
                self._add(tensor, name)

    @property
    def buffers(self) -> list[Buffer]:
        """All buffers in order of address."""
        return [self._buffers[low] for low in self._lows]

    def _add(self, tensor: Any, label: str) -> None:
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return
        buffer = self._buffers.get(storage.data_ptr())
        if buffer is None:
            buffer = self._buffers[storage.data_ptr()] = Buffer(storage, label)
            bisect.insort(self._lows, buffer.low)
        begin = tensor.data_ptr() - buffer.low
        reach = (
            1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
        )
        end = begin + reach * tensor.element_size()
        buffer.span = (min(begin, buffer.span[0]), max(end, buffer.span[1]))

    def locate(self, pointers: Array, itemsize: int, what: str) -> Buffer | None:
        """The buffer that holds all of some pointers (1-D, at least one); None when they lie in several.

        Raises OutOfBounds.
        """
        low, high = int(pointers.min()), int(pointers.max()) + itemsize
        buffer = self._last
        if buffer is None or low < buffer.low or high > buffer.high:
            buffer = self._find(low)
            if buffer is None or high > buffer.high:
                self._refuse_outside(pointers, itemsize, what)
                return None
            self._last = buffer
        if itemsize > 1 and int(np.bitwise_or.reduce(pointers)) & (itemsize - 1):
            raise OutOfBounds(f"misaligned {what} of {itemsize}-byte elements at {buffer.label}")
        return buffer

    def split(self, pointers: Array) -> list[tuple[Buffer, Array]]:
        """Pointers that lie in several buffers: each buffer with the positions of its pointers."""
        which = np.searchsorted(np.array(self._lows, np.uint64), pointers, side="right") - 1
        return [(self._buffers[self._lows[i]], np.nonzero(which == i)[0]) for i in np.unique(which)]

    @property
    def last(self) -> Buffer:
        """The buffer of the access just located."""
        assert self._last is not None
        return self._last

    def _find(self, address: int) -> Buffer | None:
        place = bisect.bisect_right(self._lows, address) - 1
        if place >= 0 and address < self._buffers[self._lows[place]].high:
            return self._buffers[self._lows[place]]
        for tensor in self._known:  # a pointer that came out of memory
            storage = tensor.untyped_storage()
            if storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes():
                self._add(tensor, "a tensor reached through a pointer")
                return self._buffers[storage.data_ptr()]
        return None

    def _refuse_outside(self, pointers: Array, itemsize: int, what: str) -> None:
        for address in np.unique(pointers[:: max(1, pointers.size // 64)]):
            self._find(int(address))  # pulls in buffers reached through pointers
        lows = np.array(self._lows, np.uint64)
        highs = np.array([self._buffers[low].high for low in self._lows], np.uint64)
        place = np.searchsorted(lows, pointers, side="right").astype(np.int64) - 1
        inside = (place >= 0) & (pointers + np.uint64(itemsize) <= highs[np.clip(place, 0, None)])
        if inside.all():
            return
        bad = pointers[~inside]
        first = int(bad[0])
        nearest = min(self.buffers, key=lambda b: min(abs(first - b.low), abs(first - b.high)), default=None)
        where = f"byte {first - nearest.low} of {nearest.label} ({nearest.size} bytes)" if nearest else "no buffer"
        raise OutOfBounds(f"out-of-bounds {what}: {bad.size} of {pointers.size} lanes, first at {where}")
