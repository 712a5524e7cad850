"""A kernel's text as a module, with its source where ``inspect`` finds it."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Callable
from typing import Any

NAME = "klineage_candidate"


def load(source: str, entry: str) -> Callable[..., Any]:
    """Execute a kernel's text and return its entry. Raises whatever the text raises, AttributeError without entry."""
    filename = f"<{NAME}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(NAME)
    module.__file__ = filename
    sys.modules[NAME] = module
    exec(compile(source, filename, "exec"), module.__dict__)
    found = getattr(module, entry, None)
    if not callable(found):
        raise AttributeError(f"the kernel has no function named {entry}")
    return found
