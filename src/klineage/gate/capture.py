# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false, reportMissingParameterType=false
"""Capture every Triton launch a module makes, with no GPU: nothing is executed.

Triton asks ``triton.runtime.driver.active`` for the target, the device, the launcher and the loader of binaries.
``CaptureDriver`` answers all of them from plain Python, so that JITFunction.run, Autotuner.run, heuristics and
tensor descriptors stay Triton's own code: arguments are specialised, kernels are compiled for the target by the
wheel's own tools, resource limits raise OutOfResources as on hardware, and in place of cuLaunchKernel a ``Launch``
is recorded (see capture_driver).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from triton.runtime.autotuner import Autotuner

from ..model import Target
from .compile import Arg

MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ programming guide, technical specifications
MAX_LAUNCHES = 4096
_PATIENCE = 4  # times as many configurations are tried while none has compiled


class LaunchError(Exception):
    """A launch that the hardware or this harness refuses; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """One captured launch."""

    kernel: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    num_ctas: int
    args: tuple[Arg, ...]
    constexprs: dict[str, str]
    trial: bool  # the autotuner trying a configuration, not the launch the module finally makes
    config: str | None
    smem_bytes: int
    spill_bytes: int | None  # None when ptxas did not say
    compile_s: float | None  # None when it came from the cache
    cubin: bytes = dataclasses.field(repr=False)
    line: int = 0  # where the kernel is defined


Score = Callable[[Sequence[Launch], Target], float]


class Capture:
    """What is recorded, and the policy for autotuned kernels: at most ``max_configs`` configurations that compile
    are tried, spread over the list, and ``score`` (lower is better) chooses."""

    def __init__(self, target: Target, score: Score, max_configs: int) -> None:
        self.target = target
        self.launches: list[Launch] = []
        self.compile_seconds: dict[str, float] = {}  # by Triton's kernel hash, those compiled now
        self.current = ""  # name of the kernel being compiled or launched
        self.inputs: dict[int, int] = {}  # storage -> index of the entry's input
        self.recorder: Any = None  # writes the call down for replay, when asked (see measured.record)
        self._score = score
        self._max_configs = max_configs
        self._tuners: list[Autotuner] = []
        self._trial_config: str | None = None
        self._tried = self._worked = 0
        self._first_error: Exception | None = None

    def record(self, launch: Launch) -> None:
        """Keep a launch. Raises LaunchError when its grid is beyond the hardware or there are too many launches."""
        for axis, size, limit in zip("xyz", launch.grid, MAX_GRID, strict=True):
            if size > limit:
                raise LaunchError(f"grid of {size} in {axis} exceeds the limit of {limit} in {launch.kernel}")
        if len(self.launches) >= MAX_LAUNCHES:
            raise LaunchError(f"more than {MAX_LAUNCHES} launches")
        self.launches.append(launch)

    @property
    def trial(self) -> bool:
        """Whether the autotuner is trying a configuration."""
        return self._trial_config is not None

    @property
    def config(self) -> str | None:
        """The autotuner's configuration in force."""
        if self._trial_config is not None:
            return self._trial_config
        best = getattr(self._tuners[-1], "best_config", None) if self._tuners else None
        return None if best is None else str(best)

    def do_bench(self, kernel_call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
        """Stands in for triton.testing.do_bench: launch once as a trial and score what was launched."""
        before = len(self.launches)
        outer, self._trial_config = self._trial_config, self._trial_config or "benchmark"
        try:
            kernel_call()
        except Exception as error:
            self._first_error = self._first_error or error
            raise
        finally:
            self._trial_config = outer
        value = self._score(self.launches[before:], self.target)
        return [value] * len(quantiles) if quantiles else value

    def tune(self, original: Callable[..., Any], tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        """Autotuner.run with our benchmark."""
        tuner.__dict__["do_bench"] = self.do_bench  # also where the user gave one: nothing can be timed here
        tuner.cache_results = False
        saved = self._tried, self._worked, self._first_error
        self._tried, self._worked, self._first_error = 0, 0, None
        self._tuners.append(tuner)
        try:
            return original(tuner, *args, **kwargs)
        finally:
            self._tuners.pop()
            self._tried, self._worked, self._first_error = saved

    def bench(
        self, original: Callable[..., Any], tuner: Autotuner, *args: Any, config: Any, **meta: Any
    ) -> list[float]:
        """Autotuner._bench, skipped once enough configurations have been tried."""
        if self._tried >= self._max_configs * (1 if self._worked else _PATIENCE):
            return [math.inf] * 3
        self._tried += 1
        outer, self._trial_config = self._trial_config, str(config)
        try:
            timings = original(tuner, *args, config=config, **meta)
        finally:
            self._trial_config = outer
        self._worked += math.isfinite(timings[0])
        return timings

    def refuse_hopeless(self) -> None:
        """Raise what the first configuration raised when none has worked: the final launch would say the same after
        compiling once more."""
        if self._first_error is not None and not self._worked and not self.trial:
            raise self._first_error

    def spread(self, configs: list[Any]) -> list[Any]:
        """The configurations to try first, evenly spread over the list, then the rest."""
        count = len(configs)
        if count <= self._max_configs:
            return configs
        first = [int(i * count / self._max_configs) for i in range(self._max_configs)]
        return [configs[i] for i in first] + [c for i, c in enumerate(configs) if i not in set(first)]
