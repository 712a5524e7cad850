# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportIncompatibleMethodOverride=false, reportUnknownLambdaType=false, reportPrivateUsage=false
"""A builder that counts instead of calculating.

Addresses, masks and every other integer are real. Tiles of floats are not: a float tile is a single number seen
through zero strides, so arithmetic on it costs nothing and its memory is never touched. Scalars are calculated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as native

from . import reduce as reductions
from .builder import Builder
from .counts import Counts
from .footprint import Footprint, lanes_in_order, sectors_of
from .formats import LOW, Array, Diverged, TensorHandle, encode, make_tensor, numpy_dtype
from .inline_asm import Results
from .libdevice import TRANSCENDENTAL
from .memory import Memory
from .scalars import LoopId

_WARP = 32
_MOST_OPERATIONS = 400_000
_tiles: dict[tuple[Any, tuple[int, ...]], Array] = {}


class TraceTooLong(BaseException):
    """A sampled program does not end (it waits for another one, or is very large)."""

    kind = "timeout"


def tile(dtype: Any, shape: tuple[int, ...]) -> Any:
    """A handle of ones (True for booleans) that takes no memory."""
    data = _tiles.get((dtype, shape))
    if data is None:
        one = encode(np.ones(1, np.float32), dtype) if dtype in LOW else np.ones(1, numpy_dtype(dtype))
        data = _tiles[dtype, shape] = np.broadcast_to(one.reshape(()), shape)
    return TensorHandle(data, dtype)


def _is_float(handle: Any) -> bool:
    dtype = handle.dtype.scalar
    return not dtype.is_ptr() and dtype.is_floating()


class Tracer(Builder):
    """Counts what one program does; ``operations`` guards against programs without end."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()
        self.footprint = Footprint()
        self.loaded = Footprint()  # the part of it that is loaded; not kept while loops are cut
        self.stored = Footprint()  # the part that is stored or updated; likewise
        self.operations = 0
        self.largest_access = 1  # lanes
        self.cut_loops = False
        self.outer_loops: set[LoopId] = set()
        self._round = 1
        self._round_open = False
        self._scale = 1.0
        self._loops: list[LoopId] = []

    # ------------------------------------------------------------------ programs and loops
    def begin_launch(self, arguments: dict[str, Any], known: Any = ()) -> None:
        self.memory = Memory(arguments, known)
        self.outer_loops = set()

    def begin_program(self, program: int) -> None:
        self.program = program
        self.counts = Counts()
        self.operations = 0
        self._loops = []
        self._scale = 1.0
        self._boundary()

    def trips(self, loop: LoopId, counts: range) -> Iterator[int]:
        """The trips of a loop that are run: all, or when loops are cut the first two (of an outer loop the first)."""
        if self._loops:
            self.outer_loops.add(self._loops[-1])
        outermost = not self._loops
        self._loops.append(loop)
        run, before = counts, self._scale
        if self.cut_loops and loop in self.outer_loops:
            run = counts[:1]
        elif self.cut_loops and len(counts) > 2:
            run = counts[:2]
            self._scale *= len(counts) / 2
        try:
            for i in run:
                self._boundary()
                yield i
        finally:
            self._scale = before
            self._loops.pop()
            self._boundary()
            if loop not in self.outer_loops:
                self.counts.loop_trips += len(counts)
            elif outermost:
                self.counts.outer_trips += len(counts)

    def trips_of_many(self, loop: LoopId, start: Array, stop: Array, step: Array) -> Iterator[Array]:
        """Programs are traced one by one here. Raises Diverged."""
        raise Diverged("programs are traced one by one here")

    def _boundary(self) -> None:
        """What comes after waits for what came before: a later load starts a new round."""
        self._round_open = False
        self._round += 1

    def operation(self) -> None:
        """Count one operation of the language. Raises TraceTooLong."""
        self.operations += 1
        if self.operations > _MOST_OPERATIONS:
            raise TraceTooLong("a sampled program does not end by itself")

    # ------------------------------------------------------------------ memory
    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **_: Any) -> Any:
        self.operation()
        dtype = ptrs.get_element_ty()
        lanes = self._lanes(ptrs, mask)
        self.largest_access = max(self.largest_access, ptrs.data.size)
        if lanes.size:
            if self._round_open and self._round in (_round_of(ptrs), _round_of(mask)):
                self._boundary()  # the address or the mask comes from a load of this round
            if not self._round_open:
                self._round_open = True
                self.counts.load_rounds += 1
            sectors = self._touch(lanes, dtype, "load")
            self.counts.bytes_loaded += lanes.size * numpy_dtype(dtype).itemsize
            self.counts.load_requests += -(-lanes.size // _WARP)
            self.counts.load_sectors += sectors
        shape = ptrs.data.shape
        result = tile(dtype, shape) if dtype.is_floating() else super().create_masked_load(ptrs, mask, other)
        result.round = self._round
        return result

    def _load(self, buffer: Any, pointers: Array, itemsize: int) -> Array:
        return buffer.view(itemsize)[(pointers - np.uint64(buffer.low)) // np.uint64(itemsize)]

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **_: Any) -> Any:
        self.operation()
        dtype = ptrs.get_element_ty()
        lanes = self._lanes(ptrs, mask)
        self.largest_access = max(self.largest_access, ptrs.data.size)
        if not lanes.size:
            return
        sectors = self._touch(lanes, dtype, "store")
        self.counts.bytes_stored += lanes.size * numpy_dtype(dtype).itemsize
        self.counts.store_requests += -(-lanes.size // _WARP)
        self.counts.store_sectors += sectors
        if not dtype.is_floating():
            super().create_masked_store(ptrs, value, mask)

    def _store(self, buffer: Any, pointers: Array, bits: Array) -> None:
        buffer.view(bits.itemsize)[(pointers - np.uint64(buffer.low)) // np.uint64(bits.itemsize)] = bits

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        self.operation()
        self._atomic(ptr, mask)
        if _is_float(val):
            return tile(val.dtype.scalar, val.data.shape)
        return native.InterpreterBuilder.create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        self.operation()
        self._atomic(ptr, None)
        return native.InterpreterBuilder.create_atomic_cas(self, ptr, cmp, val, sem, scope)

    def _atomic(self, ptr: Any, mask: Any) -> None:
        lanes = self._lanes(ptr, mask)
        if lanes.size:
            self._touch(lanes, ptr.get_element_ty(), "atomic")
            self.counts.bytes_atomic += lanes.size * numpy_dtype(ptr.get_element_ty()).itemsize
        self._boundary()

    @staticmethod
    def _lanes(ptrs: Any, mask: Any) -> Array:
        chosen = None
        if mask is not None:
            chosen = np.broadcast_to(mask.data, ptrs.data.shape)
            if chosen.all():
                chosen = None
        return lanes_in_order(ptrs.data, chosen)

    def _touch(self, lanes: Array, dtype: Any, what: str) -> int:
        itemsize = numpy_dtype(dtype).itemsize
        buffer = self.memory.locate(lanes, itemsize, what)
        sectors = sectors_of(lanes)
        places = (
            [(buffer, sectors)]
            if buffer is not None
            else [(part, sectors_of(lanes[where])) for part, where in self.memory.split(lanes)]
        )
        for part, numbers in places:
            self.footprint.add(part.low, numbers, self._scale)
            if not self.cut_loops:
                (self.loaded if what == "load" else self.stored).add(part.low, numbers)
        return sectors.size

    # ------------------------------------------------------------------ dots, reductions, library calls
    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        self.operation()
        flops = 2.0 * a.data.size * b.data.shape[-1]
        self.counts.dot(_dot_kind(a.dtype.scalar, input_precision), flops)
        self._boundary()
        return tile(d.dtype.scalar, (*a.data.shape[:-1], b.data.shape[-1]))

    def create_dot_scaled(self, lhs: Any, *rest: Any) -> Any:
        self.operation()
        accumulator = rest[-1]
        depth = lhs.data.shape[-1] * (2 if lhs.dtype.scalar == tl.uint8 else 1)
        self.counts.dot("fp8", 2.0 * accumulator.data.size * depth)
        self._boundary()
        return tile(tl.float32, accumulator.data.shape)

    def reduce(self, tensors: Any, axis: int | None, combine: Any, keep_dims: bool) -> Any:
        self.operation()
        self._collective(tensors)
        shape = _reduced_shape(tensors[0].handle.data.shape, axis, keep_dims)
        if _ready_made(tensors, combine):
            return reductions.reduce(tensors, axis, combine, keep_dims)
        return tuple(_collapsed(t, axis, shape) for t in tensors)

    def scan(self, tensors: Any, axis: int, combine: Any, reverse: bool) -> Any:
        self.operation()
        self._collective(tensors)
        if _ready_made(tensors, combine):
            return reductions.scan(tensors, axis, combine, reverse)
        return tensors

    def _collective(self, tensors: Any) -> None:
        self.counts.reductions += 1
        self.counts.reduce_lanes += tensors[0].handle.data.size
        self._boundary()

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        return self.cast_impl(src, dst_type)

    def create_erf(self, arg: Any) -> Any:
        return self.unary_op(arg, lambda x: x)

    def elements_to_map(self, total: int, pack: int) -> int:
        return pack

    def libdevice(self, name: str, args: tuple[Any, ...]) -> Any:
        self.operation()
        tensors = [a for a in args if isinstance(a, tl.core.tensor)]
        largest = max(tensors, key=lambda t: t.handle.data.size)
        lanes = largest.handle.data.size
        if name in TRANSCENDENTAL:
            self.counts.mufu_lanes += lanes
        self.counts.alu_lanes += lanes
        if lanes > 1 and _is_float(largest.handle):
            first = tuple(_first(a) if isinstance(a, tl.core.tensor) else a for a in args)
            result = super().libdevice(name, first)
            return make_tensor(tile(result.dtype.scalar, largest.handle.data.shape).data, result.dtype.scalar)
        return super().libdevice(name, args)

    def create_inline_asm(
        self,
        inlineAsm: str,
        constraints: str,
        values: Any,
        type: Any,  # noqa: A002
        isPure: bool,
        pack: int,
    ) -> Any:
        self.operation()
        lanes = max((v.data.size for v in values), default=1)
        self.counts.alu_lanes += lanes * inlineAsm.count(";") / pack
        try:
            return super().create_inline_asm(inlineAsm, constraints, values, type, isPure, pack)
        except NotImplementedError:  # its values do not matter here
            shape = values[0].data.shape if values else (1,)
            return Results([tile(t.scalar, shape) for t in (type if isinstance(type, (list, tuple)) else [type])])

    def create_print(self, *_: Any) -> None:
        """Values are not real."""

    def create_assert(self, *_: Any) -> None:
        """Values are not real."""

    def create_assume(self, *_: Any) -> None:
        """Values are not real."""


def _round_of(handle: Any) -> int:
    return getattr(handle, "round", 0)


def _first(tensor: Any) -> Any:
    data = tensor.handle.data.reshape(-1)[:1] if tensor.handle.data.ndim else tensor.handle.data
    return tl.core.tensor(TensorHandle(np.ascontiguousarray(data), tensor.dtype.scalar), tensor.dtype.scalar)


def _dot_kind(dtype: Any, precision: Any) -> str:
    if dtype == tl.float32:
        exact = precision == native._ir.INPUT_PRECISION.IEEE  # pyright: ignore[reportPrivateUsage]
        return "fp32-ieee" if exact else "tf32"
    names = {tl.float16: "fp16", tl.bfloat16: "bf16", tl.int8: "int8", tl.uint8: "int8", tl.float64: "fp64"}
    return names.get(dtype, "fp8")


def _reduced_shape(shape: tuple[int, ...], axis: int | None, keep_dims: bool) -> tuple[int, ...]:
    if axis is None:
        return (1,) * len(shape) if keep_dims else ()
    axis %= len(shape)
    return shape[:axis] + ((1,) if keep_dims else ()) + shape[axis + 1 :]


_READY_MADE = ("_sum_combine", "_elementwise_max", "_elementwise_min", "_prod_combine", "_xor_combine", "_or_combine")


def _ready_made(tensors: Any, combine: Any) -> bool:
    """Whether the values are real and numpy reduces them at once."""
    name = getattr(combine, "__name__", "")
    known = name in _READY_MADE
    return known and len(tensors) == 1 and not _is_float(tensors[0].handle)


def _collapsed(tensor: Any, axis: int | None, shape: tuple[int, ...]) -> Any:
    dtype = tensor.dtype.scalar
    if _is_float(tensor.handle):
        return make_tensor(tile(dtype, shape).data, dtype)
    data = tensor.handle.data
    first = data.reshape(-1)[0:1].reshape(()) if axis is None else np.take(data, 0, axis)
    return make_tensor(np.ascontiguousarray(first).reshape(shape), dtype)
