# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportPrivateUsage=false
# pyright: reportUntypedBaseClass=false
"""Fault: Python float arguments and loop counters stay bare Python numbers, so ``eps.to(...)`` or
``i.to(tl.int64)`` fail; the source of a kernel is cut at its last line that begins with ``def``.

Cure: floats become fp32 scalars, counters integer scalars of the bounds' type. Loops go through ``observed_loop``,
which tells the active observer where each trip begins.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as native

from .formats import Diverged, TensorHandle

LOOP_NAME = "_klineage_loop"
LoopId = int  # line and column of the statement


class LoopObserver(Protocol):
    """Hears of every counted loop; may cut it short."""

    def trips(self, loop: LoopId, counts: range) -> Iterator[int]:
        """Yield the counter's values to run, in order."""
        ...

    def trips_of_many(self, loop: LoopId, start: Any, stop: Any, step: Any) -> Iterator[Any]:
        """The same for programs traced together whose bounds differ: arrays of counters, one entry per program."""
        ...


class _Plain:
    def trips(self, loop: LoopId, counts: range) -> Iterator[int]:
        return iter(counts)

    def trips_of_many(self, loop: LoopId, start: Any, stop: Any, step: Any) -> Iterator[Any]:
        raise Diverged("programs are run one by one here")


PLAIN_LOOPS: LoopObserver = _Plain()
_observer: LoopObserver = PLAIN_LOOPS


def set_loop_observer(observer: LoopObserver) -> LoopObserver:
    """Make ``observer`` hear of loops from now on; returns the one before."""
    global _observer
    before, _observer = _observer, observer
    return before


def dynamic_range(*args: Any, **options: Any) -> Any:
    """Stands for ``tl.range`` where a kernel uses it outside a ``for`` statement."""
    return range(*_bounds(args, options)[0])


def static_range(*args: Any, **options: Any) -> Any:
    """Stands for ``tl.static_range``: plain Python counters."""
    return range(*_bounds(args, options)[0])


def _bounds(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[list[Any], Any]:
    """Bounds as integers (arrays where programs traced together differ) and the counter's type."""
    named = [options[k] for k in ("arg1", "arg2", "step") if options.get(k) is not None]
    bounds: list[Any] = []
    dtype: Any = tl.int32
    for value in (*args, *named):
        bound = getattr(value, "value", value)
        if bound is None:
            continue
        if isinstance(bound, tl.core.tensor):
            if not bound.dtype.is_int():
                raise TypeError(f"a loop bound is {bound.dtype}, not an integer")
            if bound.dtype.primitive_bitwidth == 64:
                dtype = tl.int64
            bounds.append(_number_or_numbers(bound.handle))
            continue
        if not -(2**31) <= bound < 2**31:
            dtype = tl.int64
        bounds.append(int(bound))
    return bounds, dtype


def _number_or_numbers(handle: Any) -> Any:
    if getattr(handle, "batched", False):
        column = handle.data.reshape(-1).astype(np.int64)
        return column if (column != column[0]).any() else int(column[0])
    return int(handle.data.reshape(-1)[0])


def observed_loop(line: LoopId, function: Callable[..., Iterable[Any]], *args: Any, **options: Any) -> Iterable[Any]:
    """What a ``for`` statement over a call iterates: counted loops yield scalars, others run as they are."""
    if function is not builtins.range and function is not dynamic_range:
        return function(*args, **options)
    bounds, dtype = _bounds(args, options)
    if any(isinstance(b, np.ndarray) for b in bounds):
        return _counted_apart(line, bounds, dtype)
    return _counted(line, range(*bounds), dtype)


def _counted(loop: LoopId, counts: range, dtype: Any) -> Iterator[Any]:
    kind = np.int64 if dtype == tl.int64 else np.int32
    for i in _observer.trips(loop, counts):
        yield tl.tensor(TensorHandle(np.array([i], dtype=kind), dtype), dtype)


def _counted_apart(loop: LoopId, bounds: list[Any], dtype: Any) -> Iterator[Any]:
    kind = np.int64 if dtype == tl.int64 else np.int32
    start, stop, step = bounds if len(bounds) == 3 else ([0, *bounds, 1] if len(bounds) == 1 else [*bounds, 1])
    columns = np.broadcast_arrays(start, stop, step)
    for counters in _observer.trips_of_many(loop, *columns):
        handle = TensorHandle(counters.astype(kind)[:, None], dtype)
        handle.batched = True  # pyright: ignore[reportAttributeAccessIssue]
        yield tl.tensor(handle, dtype)


class KernelTransformer(native.ASTTransformer):
    """The interpreter's rewriting of kernels, with loops observed."""

    def visit_For(self, node: ast.For) -> ast.AST:
        if isinstance(node.iter, ast.Call):
            call = node.iter
            place = ast.Constant(value=node.lineno * 1000 + min(node.col_offset, 999))
            call.args = [place, call.func, *call.args]
            call.func = ast.Name(id=LOOP_NAME, ctx=ast.Load())
        return self.generic_visit(node)


def _implicit(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(arg: Any) -> Any:
        if type(arg) is float or isinstance(arg, np.floating):
            return tl.tensor(TensorHandle(np.array([arg], dtype=np.float32), tl.float32), tl.float32)
        return plain(arg)

    return convert


def _first_def(self: Any, lines: list[str]) -> int:  # noqa: ARG001
    for number, line in enumerate(lines, start=1):
        if line.strip().startswith("def "):
            return number
    return 0


def patch_scalars() -> None:
    """Install the conversions and the observed loops."""
    native._implicit_cvt = _implicit(native._implicit_cvt)
    setattr(native, LOOP_NAME, observed_loop)  # kernels see the interpreter module's names
    native.FunctionRewriter.ast_transformer = KernelTransformer()
    native.FunctionRewriter._find_def = _first_def
