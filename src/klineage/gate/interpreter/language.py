# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportPrivateUsage=false
# pyright: reportAttributeAccessIssue=false
# pyright: reportUnknownLambdaType=false
"""The language module, remapped to the interpreter once for the whole process.

The interpreter does this anew at every launch and at every call of a device function, which takes most of a small
kernel's time. A process that interprets does nothing else, so once is enough.
"""

from __future__ import annotations

import types
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as native

from .elementwise import map_elementwise
from .formats import scalar_of
from .scalars import dynamic_range, static_range


class _NothingToRestore:
    def restore(self) -> None:
        """The language stays remapped."""


def _remap() -> None:
    names = {"tl": tl, "core": tl.core}
    native._patch_lang(types.FunctionType((lambda: None).__code__, names))


def _reduce(tensors: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    builder = native.interpreter_builder
    many = isinstance(tensors, (tuple, tl.tuple))
    inputs = tuple(tensors) if many else (tensors,)
    result = builder.reduce(inputs, _plain(axis), _plain(combine_fn), bool(_plain(keep_dims)))
    return tuple(result) if many else result[0]


def _scan(tensors: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
    builder = native.interpreter_builder
    many = isinstance(tensors, (tuple, tl.tuple))
    inputs = tuple(tensors) if many else (tensors,)
    result = builder.scan(inputs, _plain(axis), _plain(combine_fn), bool(_plain(reverse)))
    return tuple(result) if many else result[0]


def _truth(self: Any) -> bool:
    return bool(scalar_of(self.handle)) if not self.type.is_block() or self.handle.data.size == 1 else True


def _transposed(self: Any) -> Any:
    rank = len(self.type.shape)
    order = [*range(rank - 2), rank - 1, rank - 2]
    handle = native.interpreter_builder.create_trans(self.handle, order)
    return tl.core.tensor(handle, tl.block_type(self.dtype, [self.type.shape[axis] for axis in order]))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def patch_language(builder: Any) -> None:
    """Remap ``triton.language`` to ``builder`` for good."""
    native.interpreter_builder = builder
    native.interpreter_semantic.builder = builder
    native.TritonSemantic = lambda *_: native.interpreter_semantic  # triton 3.6 makes one per function
    _remap()
    tl.core.tensor.__index__ = lambda self: int(scalar_of(self.handle))  # numpy 2.4 refuses int(array)
    tl.core.tensor.__bool__ = _truth
    tl.core.tensor.T = property(_transposed)
    for module in (tl, tl.core):
        module.range = dynamic_range
        module.static_range = static_range
        module.reduce = _reduce
        module.associative_scan = _scan
        if hasattr(module, "map_elementwise"):
            module.map_elementwise = map_elementwise
    native._patch_lang = lambda *_: _NothingToRestore()
