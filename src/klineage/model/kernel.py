"""A kernel: source text, entry point and language, named by its content hash."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from .base import Frozen, content_hash


class Kernel(Frozen):
    """A self-contained module of kernels and launchers.

    ``entry`` names the function called with the task's inputs; it returns one tensor or a tuple of tensors.
    """

    source: str
    entry: str = "run"
    language: Literal["triton", "cuda"] = "triton"
    parent: str | None = None  # id of the kernel this one was derived from
    origin: str = ""  # e.g. "liger_kernel.ops.rms_norm:rms_norm_forward", a path, or a move

    @cached_property
    def id(self) -> str:
        """Content hash of language, entry and source (parent and origin do not count)."""
        return content_hash(self.language, self.entry, self.source)

    def derive(self, source: str, origin: str) -> Kernel:
        """A new kernel with other text whose parent is this one."""
        return Kernel(source=source, entry=self.entry, language=self.language, parent=self.id, origin=origin)
