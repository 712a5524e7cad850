# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false
"""Puts every cure in place, once per process."""

from __future__ import annotations

import triton

from ...errors import HarnessError
from ...model import DEFAULT_TARGET, target
from .autotune import patch_autotune
from .builder import Builder
from .driver import set_driver
from .executor import patch_executor
from .language import patch_language
from .libdevice import patch_libdevice
from .lowfloat import patch_conversions
from .scalars import patch_scalars
from .speed import patch_speed

_applied: list[Builder] = []


def apply() -> Builder:
    """Patch the interpreter; returns the builder in force. Raises HarnessError outside an interpreting process."""
    if _applied:
        return _applied[0]
    if not triton.knobs.runtime.interpret:
        raise HarnessError("Triton was imported without its interpreter", "set TRITON_INTERPRET=1 before the import")
    patch_speed()
    builder = Builder()
    patch_conversions()
    patch_scalars()
    patch_libdevice()
    patch_language(builder)
    patch_executor()
    patch_autotune()
    set_driver(target(DEFAULT_TARGET))
    _applied.append(builder)
    return builder
