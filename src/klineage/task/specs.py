"""What a case's inputs look like, found without allocating its large tensors.

The task's own input maker runs with every floating tensor on torch's ``meta`` device. Integer tensors are made for
real, because launchers may read them (targets, sequence lengths): valid values, though not the very ones that the
case's tensors hold, since the floats before them drew nothing. A maker that cannot run that way is run for real.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

TensorSpec = tuple[Literal["tensor"], tuple[int, ...], tuple[int, ...], str]
InputSpec = TensorSpec | tuple[Literal["data"], np.ndarray] | tuple[Literal["value"], Any]


# On meta nothing is drawn; torch's own meta kernels for these load hundreds of modules (seconds) to find that out.
_EMPTY: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.randn: torch.empty,
    torch.rand: torch.empty,
    torch.randn_like: torch.empty_like,
    torch.rand_like: torch.empty_like,
}
_NEW = ("new", "new_empty", "new_zeros", "new_ones", "new_full")
_SMALL = 4096  # floating tensors up to this many elements are real too: makers read their scalars
_DRAWN_IN_PLACE = ("normal_", "uniform_", "exponential_", "log_normal_", "cauchy_", "geometric_")


class _FloatsOnMeta(TorchFunctionMode):
    """Sends every large floating tensor to ``meta`` as it is made; small, integer and boolean ones stay real."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [v for v in _leaves((args, kwargs)) if isinstance(v, Tensor)]
        if any(t.is_meta for t in tensors):
            if getattr(func, "__name__", "") in _DRAWN_IN_PLACE and args:
                return args[0]
            return _undrawn(func)(*tree_map(_to_meta, args), **tree_map(_to_meta, _without_generator(func, kwargs)))
        if tensors:
            return _anew(func, args, kwargs)
        try:
            made = _undrawn(func)(*args, **{**_without_generator(func, kwargs), "device": "meta"})
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            return func(*args, **kwargs)
        floating = isinstance(made, Tensor) and (made.is_floating_point() or made.is_complex())
        return made if floating and made.numel() > _SMALL else func(*args, **kwargs)


def input_specs(make: Callable[[], Sequence[Any]], *, real: bool = False) -> list[InputSpec]:
    """Specs of the values ``make()`` returns; ``real`` makes them (right for small cases: exact and quicker).

    ``("tensor", shape, strides, dtype name)`` for floating tensors (strides in elements, dtype as torch names it:
    "float16"), ``("data", array)`` for integer and boolean ones, ``("value", v)`` for the rest.
    """
    values = None if real else meta_inputs(make)
    return [_spec(v) for v in (make() if values is None else values)]


def meta_inputs(make: Callable[[], Sequence[Any]]) -> list[Any] | None:
    """What ``make()`` returns with floating tensors on ``meta``; None when it cannot run that way.

    Any arithmetic on meta tensors costs seconds once per process: torch loads its symbolic machinery for it.
    """
    try:
        with _FloatsOnMeta():
            values = list(make())
    except Exception:  # any data-dependent maker: the caller runs it for real
        return None
    lost = any(isinstance(v, Tensor) and v.is_meta and not v.is_floating_point() for v in values)
    return None if lost else values


def _spec(value: Any) -> InputSpec:
    if not isinstance(value, Tensor):
        return ("value", value)
    if value.is_floating_point():
        return ("tensor", tuple(value.shape), tuple(value.stride()), str(value.dtype).removeprefix("torch."))
    return ("data", value.numpy())


def _anew(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call on real tensors; ``x.new_empty(shape)`` and its kind follow the rule for makers."""
    dtype = kwargs.get("dtype") or args[0].dtype if args and isinstance(args[0], Tensor) else None
    if getattr(func, "__name__", "") not in _NEW or dtype is None or not dtype.is_floating_point or len(args) < 2:
        return func(*args, **kwargs)
    size = tuple(args[1]) if isinstance(args[1], tuple | list) else tuple(a for a in args[1:] if isinstance(a, int))
    return func(*args, **kwargs) if math.prod(size) <= _SMALL else torch.empty(size, dtype=dtype, device="meta")


def _undrawn(func: Callable[..., Any]) -> Callable[..., Any]:
    return _EMPTY.get(func, func)


def _without_generator(func: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in kwargs.items() if k != "generator"} if func in _EMPTY else kwargs


def _to_meta(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dim() > 0:
        return value.to("meta")
    return torch.device("meta") if isinstance(value, torch.device) else value


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [value]
