# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportIncompatibleMethodOverride=false
"""The interpreter's builder with every fault cured; the order of bases is the order of the cures."""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime import interpreter as native

from . import reduce as reductions
from .formats import TensorHandle, repeated
from .inline_asm import InlineAsm
from .libdevice import Libdevice
from .lowfloat import LowFloats
from .sanitize import CheckedMemory


class Builder(CheckedMemory, LowFloats, InlineAsm, Libdevice):
    """Interprets with the rounding of the hardware and checks every address."""

    def __init__(self) -> None:
        super().__init__()
        # its device asserts on int32 overflow never fire here and triple the cost of integer arithmetic
        self.options = native.InterpreterOptions(sanitize_overflow=False)

    def reduce(self, tensors: Any, axis: int | None, combine: Any, keep_dims: bool) -> Any:
        """Reduce a tuple of tensors; see ``reduce.reduce``."""
        return reductions.reduce(tensors, axis, combine, keep_dims)

    def scan(self, tensors: Any, axis: int, combine: Any, reverse: bool) -> Any:
        """Scan a tuple of tensors; see ``reduce.scan``."""
        return reductions.scan(tensors, axis, combine, reverse)

    def elements_to_map(self, total: int, pack: int) -> int:
        """How many of ``total`` elements ``map_elementwise`` must really run."""
        return total

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        return TensorHandle(repeated(arg.data.reshape(-1)[:1], tuple(map(int, ret_ty.shape))), arg.dtype.scalar)

    def create_erf(self, arg: Any) -> Any:
        data = self.libdevice_array("erf", arg)
        return TensorHandle(data, arg.dtype.scalar)

    def libdevice_array(self, name: str, arg: Any) -> Any:
        """A libdevice function of one handle, as an array of the handle's type."""
        from .libdevice import evaluate

        return evaluate(name, [np.ascontiguousarray(arg.data)]).astype(arg.data.dtype)

    def grid_dependency_wait(self, *_: Any) -> None:
        """Kernels run one after another: there is nothing to wait for."""
