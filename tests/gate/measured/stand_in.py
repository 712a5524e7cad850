"""A GPU worker without a GPU: tensors live on the CPU, and Python stands in for the kernels by name.

A stand-in reads and writes through the pointers it is given, as a kernel would, so that the mapping of arguments, the
margins and the poison are those of a real replay. Run as a program it serves on a descriptor, like the real worker.
"""

from __future__ import annotations

import ctypes
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from klineage.gate.measured import device, worker
from klineage.gate.measured.device import CudaError
from klineage.gate.measured.timer import Run

FACTS: dict[str, Any] = {
    "name": "Stand-in", "arch": 90, "sms": 132, "l2_bytes": 50 << 20, "memory_bytes": 8 << 30, "uuid": "",
    "driver_version": "1.2", "clocks.max.sm": "1000", "clocks.max.mem": "2000", "clocks.applications.graphics": "",
    "power.limit": "", "torch": "0", "cuda": "0",
}  # fmt: skip
PEAKS = {"gbps": 4000.0, "fp16_tflops": 700.0, "fp32_tflops": 50.0}
VENDOR_US = 15.0


class Loader:
    """Launches stand-ins; ``spent_us`` grows by what each launch is said to take."""

    def __init__(self) -> None:
        self.spent_us = 0.0
        self.launched: list[str] = []

    def function(self, key: str, cubin: bytes, name: str, shared: int) -> str:
        return name

    def parameters(self, function: str) -> int | None:
        return None

    def launcher(self, function: str, step: dict[str, Any], values: Sequence[Any]) -> Callable[[], None]:
        kinds = [p["view"]["dtype"] if p["kind"] == "ptr" else None for p in step["params"]]
        arguments = [(v.value, dtype) for v, dtype in zip(values, kinds, strict=False)]
        stand_in, cost_us = KERNELS[function]

        def call() -> None:
            self.launched.append(function)
            self.spent_us += cost_us
            stand_in(arguments)

        return call


class Clock:
    """Says that a call takes what its launches are said to, give or take a thousandth."""

    def __init__(self, loader: Loader) -> None:
        self.loader, self.noise = loader, random.Random(0)

    def times(self, runs: Sequence[Run]) -> list[float]:
        found: list[float] = []
        for run in runs:
            run.prepare()
            before = self.loader.spent_us
            run.call()
            found.append((self.loader.spent_us - before or VENDOR_US) * self.noise.gauss(1.0, 0.001))
        return found

    def flushes(self, run: Run) -> int:
        return 1


def at(argument: tuple[int, str], count: int, offset: int = 0) -> torch.Tensor:
    """The memory behind a pointer as a tensor."""
    pointer, name = argument
    dtype = getattr(torch, name)
    data = (ctypes.c_char * (count * dtype.itemsize)).from_address(pointer + offset * dtype.itemsize)
    return torch.frombuffer(data, dtype=dtype)


def affine(arguments: Sequence[Any]) -> None:
    x, y, (n, _) = arguments[:3]
    at(y, n).copy_(2 * at(x, n) + 1)


def past_the_end(arguments: Sequence[Any]) -> None:
    affine(arguments)
    at(arguments[1], 1, offset=arguments[2][0]).fill_(1.0)


def before_the_start(arguments: Sequence[Any]) -> None:
    affine(arguments)
    at(arguments[1], 1, offset=-1).fill_(1.0)


def mutates(arguments: Sequence[Any]) -> None:
    affine(arguments)
    at(arguments[0], 1).add_(1.0)


def mutates_when_large(arguments: Sequence[Any]) -> None:
    """Overwrites a value of a large input and still answers right: it remembers what was there."""
    affine(arguments)
    if arguments[2][0] > 1000:
        place = at(arguments[0], 1, offset=777)
        before = _remembered.setdefault(arguments[0][0], place.clone())
        at(arguments[1], 1, offset=777).copy_(2 * before + 1)
        place.zero_()


_remembered: dict[int, torch.Tensor] = {}


def drops_the_tail(arguments: Sequence[Any]) -> None:
    x, y, (n, _) = arguments[:3]
    affine((x, y, (n // 2, None)))


def wrong_when_large(arguments: Sequence[Any]) -> None:
    affine(arguments)
    if arguments[2][0] > 1000:
        at(arguments[1], 1).fill_(40.0)


def once(arguments: Sequence[Any]) -> None:
    """Computes on the first call of the process and leaves what is there later."""
    if not once.done:
        affine(arguments)
    once.done = True


once.done = False


def races(arguments: Sequence[Any]) -> None:
    affine(arguments)
    at(arguments[1], 1).fill_(random.random() * 100)


def illegal_access(arguments: Sequence[Any]) -> None:
    raise CudaError(700, "launch of illegal_access")


def too_large(arguments: Sequence[Any]) -> None:
    raise CudaError(701, "launch of too_large")


def takes_the_worker_along(arguments: Sequence[Any]) -> None:
    os._exit(9)


def never_ends(arguments: Sequence[Any]) -> None:
    time.sleep(600)


KERNELS: dict[str, tuple[Callable[[Sequence[Any]], None], float]] = {
    "affine": (affine, 10.0), "slow_affine": (affine, 12.0), "same_affine": (affine, 10.0),
    **{f.__name__: (f, 10.0) for f in (past_the_end, before_the_start, mutates, mutates_when_large, drops_the_tail,
       wrong_when_large, once, races, illegal_access, too_large, takes_the_worker_along, never_ends)},
}  # fmt: skip


def make_worker() -> worker.Worker:
    """A worker on the CPU. Sets the device for this process."""
    device.DEVICE = "cpu"
    loader = Loader()
    return worker.Worker(loader, Clock(loader), FACTS, lambda _: PEAKS)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(worker.serve(socket.socket(fileno=int(sys.argv[1])), make_worker()))
