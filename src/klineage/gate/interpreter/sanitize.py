# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportIncompatibleMethodOverride=false
"""Memory of interpreted kernels: loads, stores and atomics through checked buffers, with races found.

Programs run one after another here and together on a GPU. Marks of the last program that wrote and read each
element show what order would decide: two programs storing different values to one place, a program reading what
another wrote in the same launch, a program overwriting what another has read. After its first atomic a program
counts as synchronised, because locks and flags are made of atomics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from triton.runtime import interpreter as native

from .formats import Array, TensorHandle, numpy_dtype
from .memory import Buffer, KernelFault, Memory

_SEVERAL = -2  # more than one program has read the element


class WriteRace(KernelFault):
    """Different programs store different values to one address, or lanes of one store do."""

    kind = "write_race"


class ReadRace(KernelFault):
    """A program reads what another writes in the same launch."""

    kind = "read_race"


class CheckedMemory(native.InterpreterBuilder):
    """The builder's memory operations on checked buffers."""

    memory: Memory
    program: int = 0
    synchronised: bool = False

    def begin_launch(self, arguments: dict[str, Any], known: Iterable[Any] = ()) -> None:
        """Take the buffers of a launch's arguments."""
        self.memory = Memory(arguments, known)

    def begin_program(self, program: int) -> None:
        """The next accesses are this program's."""
        self.program = program
        self.synchronised = False

    def create_load(self, ptr: Any, *rest: Any) -> Any:
        return self.create_masked_load(ptr, None, None, *rest)

    def create_store(self, ptr: Any, val: Any, *rest: Any) -> Any:
        return self.create_masked_store(ptr, val, None, *rest)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **_: Any) -> Any:
        dtype = ptrs.get_element_ty()
        kind = numpy_dtype(dtype)
        pointers, chosen = _active(ptrs.data, mask)
        if chosen is None:
            return TensorHandle(self._gather(pointers, kind).reshape(ptrs.data.shape), dtype)
        result = np.zeros(ptrs.data.shape, kind)
        if other is not None:
            result[...] = other.data
        if pointers.size:
            result[chosen] = self._gather(pointers, kind)
        return TensorHandle(result, dtype)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **_: Any) -> Any:
        kind = numpy_dtype(ptrs.get_element_ty())
        pointers, chosen = _active(ptrs.data, mask)
        if not pointers.size:
            return
        data = np.broadcast_to(value.data, ptrs.data.shape)
        data = data.reshape(-1) if chosen is None else data[chosen]
        bits = np.ascontiguousarray(data.astype(kind, copy=False)).view(f"u{kind.itemsize}")
        buffer = self.memory.locate(pointers, kind.itemsize, "store")
        if buffer is not None:
            self._store(buffer, pointers, bits)
            return
        for part, where in self.memory.split(pointers):
            self._store(part, pointers[where], bits[where])

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        self._check_atomic(ptr, mask)
        return super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        self._check_atomic(ptr, None)
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def _check_atomic(self, ptr: Any, mask: Any) -> None:
        self.synchronised = True
        pointers, _ = _active(ptr.data, mask)
        if pointers.size:
            self.memory.locate(pointers, numpy_dtype(ptr.get_element_ty()).itemsize, "atomic")

    def _gather(self, pointers: Array, kind: Any) -> Array:
        buffer = self.memory.locate(pointers, kind.itemsize, "load")
        if buffer is not None:
            return self._load(buffer, pointers, kind.itemsize).view(kind)
        bits = np.zeros(pointers.size, f"u{kind.itemsize}")
        for part, where in self.memory.split(pointers):
            bits[where] = self._load(part, pointers[where], kind.itemsize)
        return bits.view(kind)

    def _load(self, buffer: Buffer, pointers: Array, itemsize: int) -> Array:
        index = _index(pointers, buffer, itemsize)
        # which buffers a launch writes shows in its first program; later ones mark their reads of those only
        if (buffer.written or self.program == 0) and not self.synchronised:
            self._note_read(buffer, index, itemsize)
        return buffer.view(itemsize)[index]

    def _note_read(self, buffer: Buffer, index: Array, itemsize: int) -> None:
        if buffer.written:
            writer = buffer.marks(buffer.writers, itemsize)[index]
            foreign = (writer >= 0) & (writer != self.program)
            if foreign.any():
                raise ReadRace(
                    f"program {self.program} reads {buffer.label} where program {int(writer[foreign][0])} "
                    f"wrote in the same launch"
                )
        readers = buffer.marks(buffer.readers, itemsize)
        before = readers[index]
        readers[index] = np.where((before == -1) | (before == self.program), self.program, _SEVERAL)

    def _store(self, buffer: Buffer, pointers: Array, bits: Array) -> None:
        itemsize = bits.itemsize
        index = _index(pointers, buffer, itemsize)
        view = buffer.view(itemsize)
        writers = buffer.marks(buffer.writers, itemsize)
        if not self.synchronised:
            self._check_store(buffer, index, bits, view, writers)
        writers[index] = self.program
        buffer.written = True
        view[index] = bits
        if (view[index] != bits).any():
            raise WriteRace(
                f"one store of program {self.program} puts different values at one address of {buffer.label}"
            )

    def _check_store(self, buffer: Buffer, index: Array, bits: Array, view: Array, writers: Array) -> None:
        last = writers[index]
        foreign = (last >= 0) & (last != self.program)
        if foreign.any() and (clash := foreign & (view[index] != bits)).any():
            raise WriteRace(
                f"programs {int(last[clash][0])} and {self.program} store different values at one address "
                f"of {buffer.label}"
            )
        readers = buffer.readers.get(bits.itemsize)
        if readers is None:
            return
        seen = readers[index]
        foreign = (seen != -1) & (seen != self.program)
        if foreign.any() and (foreign & (view[index] != bits)).any():
            raise ReadRace(
                f"program {self.program} overwrites {buffer.label} where another program reads in the same launch"
            )


def _active(pointers: Array, mask: Any) -> tuple[Array, Array | None]:
    """The pointers that are really accessed, flat, and the boolean array that chose them (None: all)."""
    if mask is None:
        return np.ascontiguousarray(pointers).reshape(-1), None
    chosen = np.broadcast_to(mask.data, pointers.shape)
    if chosen.all():
        return np.ascontiguousarray(pointers).reshape(-1), None
    return pointers[chosen], chosen


def _index(pointers: Array, buffer: Buffer, itemsize: int) -> Array:
    return ((pointers - np.uint64(buffer.low)) >> np.uint64(itemsize.bit_length() - 1)).view(np.int64)
