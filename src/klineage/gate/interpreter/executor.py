# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false
# pyright: reportPrivateUsage=false, reportDeprecated=false
"""How a launch runs: arguments bound as Triton binds them, then programs in the order a GPU numbers them.

Replaces the interpreter's executor, which copies every argument's storage before and after a launch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch
from triton.runtime import interpreter as native
from triton.runtime.errors import InterpreterError

from .memory import KernelFault

Grid = tuple[int, int, int]
_MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: raw arguments by name, what the kernel's parameters receive, and the grid."""

    kernel: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    parameters: dict[str, Any]
    grid: Grid

    @property
    def blocks(self) -> int:
        """Programs launched."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def coordinates(self, program: int) -> Grid:
        """Grid coordinates of a program; the first axis varies fastest, as on a GPU."""
        x, y, _ = self.grid
        return program % x, program // x % y, program // (x * y)


class Runner(Protocol):
    """Decides which programs of a launch run, and with what builder."""

    def launch(self, launch: Launch) -> None:
        """Carry out one launch."""
        ...


class PlainRunner:
    """Runs every program, unchecked beyond the builder's own checks."""

    def launch(self, launch: Launch) -> None:
        """Run the whole grid in order."""
        builder = native.interpreter_builder
        builder.begin_launch(launch.arguments)
        for program in range(launch.blocks):
            run_program(builder, launch, program)


_runner: Runner = PlainRunner()


def set_runner(runner: Runner) -> Runner:
    """Make ``runner`` carry out launches from now on; returns the one before."""
    global _runner
    before, _runner = _runner, runner
    return before


def run_program(builder: Any, launch: Launch, program: int) -> None:
    """Interpret one program of a launch. Raises what the kernel raises."""
    builder.set_grid_dim(*launch.grid)
    builder.set_grid_idx(*launch.coordinates(program))
    builder.begin_program(program)
    launch.function(**launch.parameters)


@lru_cache(maxsize=1024)
def _constexprs(function: Callable[..., Any]) -> frozenset[str]:
    """Parameters annotated constexpr, under any name of ``triton.language``: the compiler looks for the word alone."""
    return frozenset(name for name, ty in function.__annotations__.items() if "constexpr" in str(ty))


@lru_cache(maxsize=1024)
def _names(function: Callable[..., Any]) -> frozenset[str]:
    spec = inspect.getfullargspec(function)
    return frozenset((*spec.args, *spec.kwonlyargs))


def _as_grid(grid: Any, bound: dict[str, Any]) -> Grid:
    if callable(grid):
        grid = grid(bound)
    sizes = [int(g) for g in (grid if isinstance(grid, (tuple, list)) else (grid,))]
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"a grid has one to three dimensions, not {len(sizes)}")
    sizes += [1] * (3 - len(sizes))
    for size, largest in zip(sizes, _MAX_GRID, strict=True):
        if not 0 <= size <= largest:
            raise ValueError(f"grid {tuple(sizes)} is beyond the device's limits {_MAX_GRID}")
    return sizes[0], sizes[1], sizes[2]


def _call(self: Any, *args: Any, **kwargs: Any) -> None:
    known = _names(self.fn)
    kwargs = {k: v for k, v in kwargs.items() if k in known}
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    bound = inspect.getcallargs(self.fn, *args, **kwargs)
    grid = _as_grid(self.grid, bound)
    with torch._C.DisableTorchFunction():  # a mode of the host code must not see the interpreter's own tensors
        fixed = _constexprs(self.fn)
        parameters = {k: v if k in fixed else native._implicit_cvt(v) for k, v in bound.items()}
        launch = Launch(getattr(self.fn, "__name__", "kernel"), self.fn, bound, parameters, grid)
        try:
            _runner.launch(launch)
        except (KernelFault, InterpreterError):
            raise
        except Exception as error:
            raise InterpreterError(_first_cause(error)) from error


def _first_cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _device_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.rewrite()(*args, **kwargs)


def patch_executor() -> None:
    """Install this executor and calls of device functions without remapping the language again."""
    native.GridExecutor.__call__ = _call
    native.InterpretedFunction.__call__ = _device_call


def programs(launch: Launch, reverse: bool) -> Iterator[int]:
    """All programs of a launch, first to last or the other way round."""
    return iter(range(launch.blocks - 1, -1, -1) if reverse else range(launch.blocks))
