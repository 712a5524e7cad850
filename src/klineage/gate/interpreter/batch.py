# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false, reportUnknownLambdaType=false
"""Many programs traced at once: what depends on the program's number gets a leading axis, one entry per program.

Only footprints are kept. Loops are cut as in ``Tracer``: two trips of an innermost loop, one of an outer loop. A
program that branches or loops on a value in a way its neighbours do not raises ``Diverged``; the caller then runs
programs one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl

from .executor import Launch
from .footprint import Footprint, lanes_in_order, sectors_of
from .formats import Array, Diverged, TensorHandle, numpy_dtype
from .memory import OutOfBounds
from .sanitize import CheckedMemory
from .scalars import LoopId
from .trace import Tracer, tile
from .trace_ops import ELEMENTWISE, is_batched


class BatchTracer(Tracer):
    """Runs one program body for a whole array of programs."""

    def __init__(self) -> None:
        super().__init__()
        self.cut_loops = True
        self._coordinates: tuple[Array, Array, Array] = (np.zeros(0), np.zeros(0), np.zeros(0))
        self._groups: list[tuple[Array | None, float]] = [(None, 1.0)]  # programs in this trip, repeats of the trip
        self.outer_counts: Array = np.zeros(0)
        self.stores = Footprint()  # sectors stored or updated

    def run(self, launch: Launch, programs: Array, outer_loops: set[LoopId]) -> float:
        """Trace programs; returns the mean number of trips of outer loops. Raises Diverged."""
        x, y, _ = launch.grid
        self._coordinates = (programs % x, programs // x % y, programs // (x * y))
        self._groups = [(None, 1.0)]
        self.outer_counts = np.zeros(programs.size)
        self.begin_program(0)
        self.outer_loops = set(outer_loops)
        self.set_grid_dim(*launch.grid)
        self.set_grid_idx(0, 0, 0)
        try:
            launch.function(**launch.parameters)
        except Diverged:
            raise
        except (OutOfBounds, Exception) as error:  # whatever it is, running one by one tells it exactly
            raise Diverged(str(error)) from error
        return float(self.outer_counts.mean())

    def create_get_program_id(self, axis: int) -> Any:
        place = self._coordinates[axis]
        same = place.size and (place == place[0]).all()
        data = place[:1].astype(np.int32) if same else place.astype(np.int32)[:, None]
        return _handle(data, tl.int32, batched=not same)

    # ------------------------------------------------------------------ loops
    def trips(self, loop: LoopId, counts: range) -> Iterator[int]:
        if loop in self.outer_loops and not self._loops:
            self.outer_counts += len(counts)
        return super().trips(loop, counts)

    def trips_of_many(self, loop: LoopId, start: Array, stop: Array, step: Array) -> Iterator[Array]:
        """The counters of a loop whose bounds differ between programs, one per program."""
        counts = np.maximum(0, -((start - stop) // step))
        if self._groups != [(None, 1.0)] or self._scale != 1.0:
            raise Diverged("loops with different bounds inside each other")
        self._loops.append(loop)
        try:
            if loop in self.outer_loops:
                if not counts.all():
                    raise Diverged("some programs have nothing to do")
                self.outer_counts += counts
                yield start
                return
            for trip in range(min(2, int(counts.max(initial=0)))):
                at_most_two = np.minimum(counts, 2)
                self._groups = [
                    (counts == n, float(n / m)) for n, m in set(zip(counts.tolist(), at_most_two.tolist(), strict=True))
                    if n > trip
                ]  # fmt: skip
                yield start + trip * step
        finally:
            self._groups = [(None, 1.0)]
            self._loops.pop()

    # ------------------------------------------------------------------ memory
    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **_: Any) -> Any:
        self.operation()
        dtype = ptrs.get_element_ty()
        self._visit(ptrs, mask)
        if dtype.is_floating():
            return tile(dtype, logical_shape(ptrs))
        many = is_batched(ptrs) or is_batched(mask)
        if mask is not None and many and not is_batched(ptrs):
            ptrs = _handle(np.broadcast_to(ptrs.data, mask.data.shape), ptrs.dtype, batched=True)
        result = CheckedMemory.create_masked_load(self, ptrs, mask, other)
        result.batched = many
        return result

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **_: Any) -> Any:
        self.operation()
        self._visit(ptrs, mask, self.stores)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        if not val.dtype.scalar.is_floating():
            raise Diverged("integer atomics hand out different values")
        self._visit(ptr, mask, self.stores)
        return tile(val.dtype.scalar, logical_shape(ptr))

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        raise Diverged("compare-and-swap hands out different values")

    def create_descriptor_load(self, desc: Any, indices: list[Any], *_: Any) -> Any:
        ptrs, mask = self._descriptor(desc, indices)
        return self.create_masked_load(ptrs, mask, None)

    def create_descriptor_store(self, desc: Any, value: Any, indices: list[Any]) -> Any:
        ptrs, mask = self._descriptor(desc, indices)
        self.create_masked_store(ptrs, value, mask)

    def _descriptor(self, desc: Any, indices: list[Any]) -> tuple[Any, Any]:
        if is_batched(desc.base):
            raise Diverged("descriptors with different bases")
        rank = len(desc.block_shape)
        itemsize = np.uint64(numpy_dtype(desc.base.get_element_ty()).itemsize)
        pointers: Array = desc.base.data.reshape((1,) * (rank + 1))
        inside: Array = np.ones((1,) * (rank + 1), dtype=bool)
        for axis, size in enumerate(desc.block_shape):
            place = [1] * (rank + 1)
            place[axis + 1] = size
            begin = indices[axis].data.astype(np.int64).reshape((-1,) + (1,) * rank)
            offset = begin + np.arange(size).reshape(place)
            stride = int(desc.strides[axis].data.reshape(-1)[0])
            pointers = pointers + itemsize * (offset * stride).astype(np.uint64)
            inside = inside & (offset >= 0) & (offset < int(desc.shape[axis].data.reshape(-1)[0]))
        many = pointers.shape[0] > 1
        inside = np.broadcast_to(inside, pointers.shape)
        if not many:
            pointers, inside = pointers[0], inside[0]
        return _handle(pointers, desc.base.dtype.scalar, many), _handle(inside, tl.int1, many)

    def _visit(self, ptrs: Any, mask: Any, also: Footprint | None = None) -> None:
        """Note the sectors of an access, for each group of programs that make it (``also`` in that footprint)."""
        itemsize = numpy_dtype(ptrs.get_element_ty()).itemsize
        pointers, chosen = ptrs.data, None if mask is None else mask.data
        many = is_batched(ptrs) or is_batched(mask)
        if chosen is not None:
            shape = np.broadcast_shapes(pointers.shape, chosen.shape)
            pointers, chosen = np.broadcast_to(pointers, shape), np.broadcast_to(chosen, shape)
            chosen = None if chosen.all() else chosen
        for rows, repeats in self._groups:
            part, some = pointers, chosen
            if many and rows is not None:
                part, some = pointers[rows], None if chosen is None else chosen[rows]
            lanes = _lanes(part, some) if many else lanes_in_order(part, some)
            if not lanes.size:
                continue
            buffer = self.memory.locate(lanes, itemsize, "access")
            places = [(buffer, lanes)] if buffer else [(b, lanes[w]) for b, w in self.memory.split(lanes)]
            for place, where in places:
                self.footprint.add(place.low, sectors_of(where), self._scale * repeats)
                if also is not None:
                    also.add(place.low, sectors_of(where))

    # ------------------------------------------------------------------ what has no leading axis
    def create_dot(self, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        self.operation()
        return tile(d.dtype.scalar, logical_shape(d))

    def create_dot_scaled(self, lhs: Any, *rest: Any) -> Any:
        self.operation()
        return tile(tl.float32, logical_shape(rest[-1]))

    def reduce(self, tensors: Any, axis: int | None, combine: Any, keep_dims: bool) -> Any:
        _refuse(t.handle for t in tensors)
        return super().reduce(tensors, axis, combine, keep_dims)

    def scan(self, tensors: Any, axis: int, combine: Any, reverse: bool) -> Any:
        _refuse(t.handle for t in tensors)
        return super().scan(tensors, axis, combine, reverse)

    def elements_to_map(self, total: int, pack: int) -> int:
        raise Diverged("element by element")

    def libdevice(self, name: str, args: tuple[Any, ...]) -> Any:
        _refuse(a.handle for a in args if isinstance(a, tl.core.tensor))
        return super().libdevice(name, args)

    def create_inline_asm(self, inlineAsm: str, constraints: str, values: Any, *rest: Any) -> Any:
        _refuse(values)
        return super().create_inline_asm(inlineAsm, constraints, values, *rest)

    def create_histogram(self, *args: Any) -> Any:
        raise Diverged("histograms")


def _handle(data: Array, dtype: Any, batched: bool) -> Any:
    handle = TensorHandle(data, dtype)
    handle.batched = batched  # pyright: ignore[reportAttributeAccessIssue]
    return handle


def logical_shape(handle: Any) -> tuple[int, ...]:
    """The shape one program sees."""
    return handle.data.shape[1:] if is_batched(handle) else handle.data.shape


def _lanes(pointers: Array, chosen: Array | None) -> Array:
    """Active addresses, program after program, each in the order of its own smallest stride."""
    if pointers.ndim <= 2 or not pointers.shape[0]:
        return pointers.reshape(-1) if chosen is None else pointers[chosen]
    first = pointers[0]
    steps = [_step(first, axis) for axis in range(first.ndim)]
    order = [0, *(axis + 1 for axis in sorted(range(first.ndim), key=lambda a: -steps[a]))]
    pointers = pointers.transpose(order)
    return pointers.reshape(-1) if chosen is None else pointers[chosen.transpose(order)]


def _step(pointers: Array, axis: int) -> int:
    if pointers.shape[axis] == 1:
        return 0
    index = [0] * pointers.ndim
    first = int(pointers[tuple(index)])
    index[axis] = 1
    return abs(int(pointers[tuple(index)]) - first)


def _refuse(handles: Any) -> None:
    if any(is_batched(h) for h in handles):
        raise Diverged("an operation on values that differ between programs")


# ---------------------------------------------------------------------- operations with a leading axis
def _lifted(plain: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise operation: the leading axis broadcasts by itself; floats do not need it."""

    def operate(self: BatchTracer, *args: Any) -> Any:
        result = plain(self, *args)
        if any(is_batched(a) for a in args):
            dtype = result.dtype.scalar
            if not dtype.is_ptr() and dtype.is_floating() and result.data.dtype != np.bool_:
                return tile(dtype, result.data.shape[1:])
            result.batched = True
        return result

    return operate


def _shaped(plain: Callable[..., Any], lift: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    """A shape operation: its arguments are rewritten for one more axis in front."""

    def operate(self: BatchTracer, arg: Any, *args: Any) -> Any:
        if not is_batched(arg):
            return plain(self, arg, *args)
        result = plain(self, arg, *lift(arg.data.shape[0], *args))
        result.batched = True
        return result

    return operate


def _splat(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: BatchTracer, ret_ty: Any, arg: Any) -> Any:
        if not is_batched(arg):
            return plain(self, ret_ty, arg)
        shape = tuple(int(n) for n in ret_ty.shape)
        column = arg.data.reshape((-1,) + (1,) * len(shape))
        return _handle(np.broadcast_to(column, (column.shape[0], *shape)), arg.dtype.scalar, batched=True)

    return operate


def _split(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: BatchTracer, val: Any) -> Any:
        halves = plain(self, val)
        for half in halves:
            half.batched = is_batched(val)
        return halves

    return operate


def _unable(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: BatchTracer, *args: Any) -> Any:
        _refuse(a for a in args if isinstance(a, TensorHandle))
        return plain(self, *args)

    return operate


def _equip() -> None:
    shaped: dict[str, Callable[..., tuple[Any, ...]]] = {
        "create_expand_dims": lambda _, axis: (axis + 1,),
        "create_broadcast": lambda many, shape: ((many, *shape),),
        "create_reshape": lambda many, shape, *rest: ((many, *shape), *rest),
        "create_trans": lambda _, perm: ((0, *(p + 1 for p in perm)),),
    }
    for name in ELEMENTWISE:
        if hasattr(Tracer, name):
            setattr(BatchTracer, name, _lifted(getattr(Tracer, name)))
    for name, lift in shaped.items():
        setattr(BatchTracer, name, _shaped(getattr(Tracer, name), lift))
    for name in ("create_cat", "create_gather", "create_unsplat"):
        setattr(BatchTracer, name, _unable(getattr(Tracer, name)))
    BatchTracer.create_join = _lifted(Tracer.create_join)
    BatchTracer.create_split = _split(Tracer.create_split)
    BatchTracer.create_splat = _splat(Tracer.create_splat)


_equip()

__all__ = ["BatchTracer", "Diverged", "Footprint"]
