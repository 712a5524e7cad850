"""What the command line prints: results to stdout (pages, or JSON alone), all else to stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from enum import Enum
from typing import Any, TextIO

from rich.console import Console, RenderableType

from ..errors import KLineageError
from ..model import Frozen


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: kernels' names and reasons may hold brackets or colons."""
    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 160  # a log or a pipe has no width of its own
    return made


def as_json(value: Any) -> Any:
    """A JSON-able form of values, lists and dicts of values; derived figures of a value are included."""
    if isinstance(value, Frozen):
        names = [*type(value).model_fields, *_derived(value)]
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")  # JSON has no such numbers
    return value


def _derived(value: Frozen) -> list[str]:
    wanted = ("id", "accepted", "latency_us", "speedup", "fraction", "is_skill")
    return [name for name in wanted if name not in type(value).model_fields and hasattr(type(value), name)]


def show(value: Any, page: Callable[[], RenderableType], *, as_json_text: bool) -> None:
    """Print a result: the page, or with ``as_json_text`` one JSON document."""
    if as_json_text:
        print_json(as_json(value))
    else:
        console().print(page())


def print_json(data: Any) -> None:
    """One JSON document on stdout."""
    stream = _results or sys.stdout
    stream.write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    stream.flush()


_results: TextIO | None = None  # where JSON goes while everything else is kept off stdout


@contextmanager
def json_alone() -> Generator[None, None, None]:
    """Keep stdout for ``print_json``: what a library prints or a child writes to descriptor 1 goes to stderr."""
    global _results  # noqa: PLW0603 (a process has one stdout)
    with ExitStack() as undo:
        stdout: TextIO = sys.stdout
        _results = stdout
        undo.callback(_forget_results)
        undo.enter_context(redirect_stdout(sys.stderr))
        if _descriptor(stdout) == 1:
            stdout.flush()
            kept = os.dup(1)
            undo.callback(os.close, kept)
            _results = undo.enter_context(os.fdopen(os.dup(1), "w", encoding="utf-8"))
            os.dup2(2, 1)
            undo.callback(os.dup2, kept, 1)
        yield


def _forget_results() -> None:
    global _results  # noqa: PLW0603
    _results = None


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # a buffer, not a file
        return None


def print_error(line: str, error: KLineageError | None, status: int, *, as_json_text: bool) -> None:
    """One red line on stderr, and with ``as_json_text`` the same as an object on stdout."""
    console(stderr=True).print(line, style="bold red", soft_wrap=True)
    if as_json_text:
        message, fix = (error.message, error.fix) if error else (line, "")
        kind = type(error).__name__ if error else "Interrupted" if status == 130 else "InternalError"
        print_json({"error": {"kind": kind, "message": message, "fix": fix, "exit_status": status}})
