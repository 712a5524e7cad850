# pyright: reportMissingTypeStubs=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Where launches cannot be captured: the candidate runs on the GPU in a confined child of its own.

Runs in a ``plain`` worker. It answers with outputs as bytes; the parent compares. Its times are those of a process that
the candidate shares, which the verdict says.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from triton.runtime.jit import JITFunction

from ..interpreter.host import HostWatch
from ..wire import Payload
from . import device

_TIMED = 30


class _Launches:
    """Tells a watch of every launch, so that computing with torch on what a kernel made is told from other work."""

    def __init__(self) -> None:
        self.watch: HostWatch | None = None

    def install(self) -> None:
        """Hook Triton's launches, once."""
        run: Callable[..., Any] = JITFunction.run

        def noted(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            result = run(kernel, *args, **kwargs)
            if self.watch is not None:
                self.watch.note_launch((*args, *kwargs.values()))
            return result

        JITFunction.run = noted  # type: ignore[method-assign]


_LAUNCHES = _Launches()


def run_job(payload: Payload) -> Payload:
    """Outputs of every case, twice; with ``timed`` the times in microseconds of calls and the outputs of the last."""
    clock = _Clock() if payload["timed"] else None  # before the candidate can put anything in its place
    _LAUNCHES.install()
    entry = _entry(payload)
    return {"cases": [_case(entry, case["inputs"], clock) for case in payload["cases"]]}


class _Clock:
    def __init__(self) -> None:
        self._event, self._wait = torch.cuda.Event, torch.cuda.synchronize
        size = 2 * int(torch.cuda.get_device_properties(0).L2_cache_size)
        self._flush = torch.empty(size, dtype=torch.uint8, device="cuda")

    def times(self, call: Callable[[], Any]) -> list[float]:
        for _ in range(5):
            call()
        self._wait()
        pairs: list[tuple[Any, Any]] = []
        for _ in range(_TIMED):
            start, end = self._event(enable_timing=True), self._event(enable_timing=True)
            self._flush.zero_()
            start.record()
            call()
            end.record()
            pairs.append((start, end))
        self._wait()
        return [1e3 * start.elapsed_time(end) for start, end in pairs]


def _entry(payload: Payload) -> Callable[..., Any]:
    path = Path("candidate.py").absolute()
    path.write_text(payload["source"])
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, payload["entry"])


def _case(entry: Callable[..., Any], given: list[Any], clock: _Clock | None) -> Payload:
    inputs = device.moved(given)
    watch = HostWatch(poison_allocations=True)
    _LAUNCHES.watch = watch
    runs: list[list[torch.Tensor]] = []
    for _ in range(1 if clock else 2):
        with watch:
            watch.take_inputs([v for v in inputs if isinstance(v, torch.Tensor)])
            result = entry(*inputs)
        device.wait()
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        runs.append([o.detach().cpu() for o in outputs])
    changed: list[int] = []
    for index, (value, original) in enumerate(zip(inputs, given, strict=True)):
        if isinstance(value, torch.Tensor) and not torch.equal(value.cpu(), original):
            changed.append(index)
    return {
        "outputs": runs,
        "changed": changed,
        "torch_ops": watch.suspicious(),
        "times": clock.times(lambda: entry(*inputs)) if clock else [],
    }
