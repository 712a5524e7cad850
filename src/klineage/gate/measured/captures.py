"""Captured launches of kernels judged before, kept for races against later ones."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...model import Kernel
from ..compile import CompileOutcome
from .program import outline

_MOST = 64


@dataclass(frozen=True)
class Captured:
    """A kernel's programs by case and the binaries they launch. Those with the same ``signature`` do the same on the
    bench cases, instruction by instruction."""

    programs: dict[str, Any]
    cubins: dict[str, bytes]
    signature: str


class Captures:
    """The latest captures of one task; thread-safe. ``record`` makes one that is not kept any more, if it can."""

    def __init__(self, bench: Sequence[str], record: Callable[[Kernel], CompileOutcome | None]) -> None:
        self._bench, self._record = tuple(bench), record
        self._lock = threading.Lock()
        self._kept: dict[str, Captured] = {}

    def keep(self, kernel: Kernel, compiled: CompileOutcome) -> Captured:
        """Keep what was captured of a kernel, letting the oldest go."""
        timed = dataclasses.replace(compiled, launches={name: compiled.launches[name] for name in self._bench})
        outlines = "".join(outline(compiled.programs[name]) for name in self._bench)
        captured = Captured(compiled.programs, compiled.cubins, timed.signature + outlines)
        with self._lock:
            while len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[kernel.id] = captured
        return captured

    def of(self, kernel: Kernel) -> Captured | None:
        """What was captured of a kernel, again if need be; None where its launches cannot be replayed."""
        found = self._kept.get(kernel.id)
        if found is not None:
            return found
        compiled = self._record(kernel)
        return None if compiled is None else self.keep(kernel, compiled)
