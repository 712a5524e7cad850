# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportPrivateUsage=false
# pyright: reportAttributeAccessIssue=false
"""Caches in the language's front end, whose bookkeeping takes most of an interpreted kernel's time.

A tensor's shape as constexprs, a block type's checked shape and a type's numpy equivalent depend on the type alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.language import semantic
from triton.runtime import interpreter as native

from .formats import numpy_dtype

_facts: dict[tuple[int, tuple[int, ...]], dict[str, Any]] = {}  # by the element type's identity: it is kept alive
_SHAPE = "_klineage_shape"


def _block_init(plain: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, element_ty: Any, shape: Any) -> None:
        values = shape.values if isinstance(shape, tl.tuple) else shape
        key = (id(element_ty), tuple(getattr(n, "value", n) for n in values))
        facts = _facts.get(key)
        if facts is None:
            plain(self, element_ty, shape)
            self.__dict__[_SHAPE] = _shape_of(self)
            facts = _facts[key] = dict(self.__dict__)
        self.__dict__.update(facts)

    return init


def _shape_of(type: Any) -> tuple[Any, Any, Any]:  # noqa: A002
    """What a tensor of the type shows as shape, number of elements and scalar type."""
    sizes = [getattr(n, "value", n) for n in type.shape] if type.is_block() else []
    return tl.tuple([tl.constexpr(n) for n in sizes]), tl.constexpr(math.prod(sizes)), type.scalar


def _tensor_init(self: Any, handle: Any, type: Any) -> None:  # noqa: A002
    known = type.__dict__.get(_SHAPE)
    if known is None:
        known = type.__dict__[_SHAPE] = _shape_of(type)
    self.handle = handle
    self.type = type
    self.shape, self.numel, self.dtype = known


def _unwrapping(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    leaves = frozenset((int, float, bool, str, type(None), tl.core.tensor, tl.core.dtype))

    def unwrap(value: Any) -> Any:
        kind = type(value)
        if kind is tl.constexpr:
            return value.value
        return value if kind in leaves else plain(value)

    return unwrap


def patch_speed() -> None:
    """Install the caches."""
    tl.core.block_type.__init__ = _block_init(tl.core.block_type.__init__)
    tl.core.tensor.__init__ = _tensor_init
    unwrap = _unwrapping(tl.core._unwrap_if_constexpr)
    for module in (tl.core, semantic):
        if hasattr(module, "_unwrap_if_constexpr"):
            module._unwrap_if_constexpr = unwrap
    native._get_np_dtype = numpy_dtype
