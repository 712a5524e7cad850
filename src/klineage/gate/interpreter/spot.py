# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportIncompatibleMethodOverride=false
"""A few programs of a real-size case, run on real values: what they store can be compared with the reference.

What a program computes from memory that only programs left out would have written is not compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten

from ..pretend_cuda import PretendCuda
from . import autotune
from .batch import BatchTracer
from .builder import Builder
from .executor import Launch, run_program, set_runner
from .footprint import SECTOR_BYTES, Footprint
from .formats import Array, Diverged
from .host import HostWatch
from .memory import Buffer, KernelFault
from .trace_ops import TraceTooLong, using_builder

_MOST_DRAWN = 1024  # programs looked at for repeated stores
_MOST_BLOCKS = 1 << 20  # of a grid whose programs are numbered one by one
_FEWEST_SHARED = 8  # sectors, below which neighbours' edges explain them
_MOST_PAIRS = 4096  # elements of an output that are sent back
_MOST_OPERATIONS = 200_000


class SpotBuilder(Builder):
    """Runs with every address checked, and remembers which elements the programs that ran have stored."""

    def __init__(self) -> None:
        super().__init__()
        self.unfilled: set[int] = set()  # storages that nobody filled
        self.before: set[int] = set()  # storages that an earlier launch stores to
        self.known: dict[tuple[int, int], Array] = {}  # (storage, item size) -> elements stored and trusted
        self.stored: dict[tuple[int, int], list[Array]] = {}
        self.lost: set[int] = set()  # storages with atomics: partial sums
        self.starved = False
        self.operations = 0

    def begin_launch(self, arguments: dict[str, Any], known: Any = ()) -> None:
        super().begin_launch(arguments, known)
        self.before |= {storage for storage, _ in self.stored}

    def begin_program(self, program: int) -> None:
        super().begin_program(program)
        self.starved = False

    def observe_operation(self) -> None:
        """Guards against programs without end. Raises TraceTooLong."""
        self.operations += 1
        if self.operations > _MOST_OPERATIONS:
            raise TraceTooLong("a sampled program does not end by itself")

    def trips(self, _loop: Any, counts: range) -> Any:
        """All trips of a loop."""
        return iter(counts)

    def trips_of_many(self, _loop: Any, start: Any, stop: Any, step: Any) -> Any:
        """Programs run one by one here: never called."""
        raise NotImplementedError

    def _mask(self, buffer: Buffer, itemsize: int) -> Array:
        key = buffer.low, itemsize
        if key not in self.known:
            self.known[key] = np.zeros(buffer.size // itemsize, dtype=bool)
        return self.known[key]

    def _load(self, buffer: Buffer, pointers: Array, itemsize: int) -> Array:
        self.observe_operation()
        index = (pointers - np.uint64(buffer.low)) // np.uint64(itemsize)
        if buffer.low in self.lost:
            self.starved = True
        elif buffer.low in self.unfilled or buffer.low in self.before:
            self.starved = self.starved or not self._mask(buffer, itemsize)[index].all()
        return buffer.view(itemsize)[index]

    def _store(self, buffer: Buffer, pointers: Array, bits: Array) -> None:
        self.observe_operation()
        itemsize = bits.itemsize
        index = (pointers - np.uint64(buffer.low)) // np.uint64(itemsize)
        buffer.view(itemsize)[index] = bits
        self._mask(buffer, itemsize)[index] = not self.starved
        self.stored.setdefault((buffer.low, itemsize), []).append(index.astype(np.int64))

    def _check_atomic(self, ptr: Any, mask: Any) -> None:
        super()._check_atomic(ptr, mask)
        if self.memory._last is not None:  # pyright: ignore[reportPrivateUsage]
            self.lost.add(self.memory.last.low)

    def sample(self, output: torch.Tensor) -> tuple[Array, Array] | None:
        """(places, places that are trusted) of an output's stored elements, or None when none was seen."""
        storage, itemsize = output.untyped_storage().data_ptr(), output.element_size()
        parts = self.stored.get((storage, itemsize))
        if not parts or storage in self.lost or not output.is_contiguous() or output.storage_offset():
            return None
        places = np.unique(np.concatenate(parts))
        places = places[self.known[storage, itemsize][places]]
        return places, places[:: max(1, places.size // _MOST_PAIRS)][:_MOST_PAIRS]


class SpotRunner:
    """Runs the programs at given shares of each grid."""

    def __init__(self, watch: HostWatch, builder: SpotBuilder, shares: Sequence[float], seed: int) -> None:
        self._watch, self._builder, self._shares = watch, builder, shares
        self._chance = np.random.default_rng(seed)
        self.distinct: dict[int, float] = {}  # storage -> distinct bytes that its launches store, as far as is seen
        self.kernels: list[str] = []
        self.fault: KernelFault | None = None

    def launch(self, launch: Launch) -> None:
        """Run a few programs of one launch."""
        builder = self._builder
        if launch.blocks:
            self.kernels.append(launch.kernel)
        autotune.CHOICE.launches = len(self.kernels)
        builder.unfilled |= self._watch.unfilled
        builder.begin_launch(launch.arguments, self._watch.known())
        chosen = sorted({min(int(s * launch.blocks), launch.blocks - 1) for s in self._shares}) if launch.blocks else []
        try:
            with using_builder(builder):
                for program in chosen:
                    builder.operations = 0
                    run_program(builder, launch, program)
        except KernelFault as fault:
            self.fault = self.fault or fault
            raise
        self._look_for_repeats(launch)

    def _look_for_repeats(self, launch: Launch) -> None:
        """How many distinct bytes the whole grid can store, from how often two halves of a random sample of programs
        store to the same sectors. Storages of which nothing is known get no figure below infinity."""
        drawn = self._chance.permutation(launch.blocks)[:_MOST_DRAWN] if launch.blocks <= _MOST_BLOCKS else None
        if drawn is None:
            drawn = np.unique(self._chance.integers(0, launch.blocks, _MOST_DRAWN))
            self._chance.shuffle(drawn)
        halves = [self._stores(launch, np.sort(half)) for half in (drawn[::2], drawn[1::2])]
        for storage in {low for half in halves if half for low in half.parts}:
            distinct = math.inf
            first, second = halves
            if first is not None and second is not None:
                one, other = first.of(storage)[0], second.of(storage)[0]
                at = np.searchsorted(other, one)  # both are sorted and without repeats
                shared = int((other[np.minimum(at, other.size - 1)] == one).sum()) if other.size else 0
                if shared >= _FEWEST_SHARED:
                    distinct = one.size * other.size / shared * SECTOR_BYTES
            self.distinct[storage] = self.distinct.get(storage, 0.0) + distinct

    def _stores(self, launch: Launch, programs: Array) -> Footprint | None:
        batch = BatchTracer()
        batch.begin_launch(launch.arguments, self._watch.known())
        try:
            with using_builder(batch):
                batch.run(launch, programs.astype(np.int64), set())
        except (Diverged, KernelFault, TraceTooLong):
            return None
        return batch.stores


def spot_check(
    entry: Any, inputs: list[Any], shares: Sequence[float], configs: Sequence[str | None], seed: int
) -> dict[str, Any]:
    """{"outputs": [{"shape", "dtype", "places", "values", "distinct" (bytes stored, None: as many as
    there are)} or None], "kernels"}, or {"error", "kind"}."""
    watch = HostWatch(poison_allocations=False)
    watch.take_inputs([v for v in inputs if isinstance(v, torch.Tensor)])
    builder = SpotBuilder()
    runner = SpotRunner(watch, builder, shares, seed)
    autotune.CHOICE.launches, autotune.CHOICE.printed = 0, list(configs)
    previous = set_runner(runner)
    try:
        with PretendCuda("cpu"), watch:
            outcome = entry(*inputs)
    except (Exception, KernelFault, TraceTooLong) as error:
        told = runner.fault or error
        return {
            "error": f"{type(told).__name__}: {' '.join(str(told).split())}"[:500],
            "kind": getattr(told, "kind", ""),
        }
    finally:
        set_runner(previous)
    leaves, _ = tree_flatten(outcome)
    return {"outputs": [_seen(builder, o, runner.distinct) for o in leaves], "kernels": runner.kernels}


def _seen(builder: SpotBuilder, output: Any, distinct: dict[int, float]) -> dict[str, Any] | None:
    if not isinstance(output, torch.Tensor):
        return None
    form: dict[str, Any] = {"shape": list(output.shape), "dtype": str(output.dtype).removeprefix("torch.")}
    known = distinct.get(output.untyped_storage().data_ptr(), math.inf)
    form["distinct"] = None if math.isinf(known) else known
    sampled = builder.sample(output.detach())
    if sampled is None:
        return {**form, "places": np.empty(0, np.int64), "values": np.empty(0, np.float64)}
    values = output.detach().reshape(-1)[torch.from_numpy(sampled[1])].double().numpy()
    return {**form, "places": sampled[1], "values": values}
