"""Sites: the places of a kernel that moves act on, as values."""

from __future__ import annotations

from enum import StrEnum

from .base import Frozen


class SiteKind(StrEnum):
    """The closed set of site kinds."""

    KERNEL = "kernel"  # a @triton.jit function
    LAUNCHER = "launcher"  # a Python function that launches kernels
    LAUNCH = "launch"  # kernel[grid](...)
    LOOP = "loop"  # a for/while in a kernel
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    DOT = "dot"
    REDUCTION = "reduction"
    SCAN = "scan"
    PROGRAM_ID = "program_id"
    CONSTEXPR = "constexpr"  # a constexpr parameter of a kernel
    AUTOTUNE = "autotune"  # @triton.autotune / @triton.heuristics
    HINT = "hint"  # multiple_of, max_contiguous, max_constancy, eviction policy, cache modifier
    DESCRIPTOR = "descriptor"  # tensor descriptor or block pointer


class Site(Frozen):
    """One site. ``start``/``end`` are byte offsets into the UTF-8 source; ``line`` counts from 1."""

    kind: SiteKind
    function: str  # the function it stands in
    line: int
    start: int
    end: int
    text: str  # the source text of the site, cut to 200 characters
    detail: dict[str, str] = {}

    @property
    def label(self) -> str:
        """Short name for people: kind, function and line."""
        return f"{self.kind}@{self.function}:{self.line}"
