"""Progress on stderr: live bars on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class _Stage(NamedTuple):
    what: str
    task: TaskID
    began: float


class RichProgress:
    """Implements the Progress protocol of the model. Stages nest; safe to call from several threads."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.RLock()
        self._all: dict[int, list[_Stage]] = {}  # by thread: jobs that run side by side each have their own stages
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[message]}", markup=False, style="dim"),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not console.is_terminal,
        )

    @property
    def _stages(self) -> list[_Stage]:
        return self._all.setdefault(threading.get_ident(), [])

    def __enter__(self) -> RichProgress:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._live.stop()

    def start(self, what: str, total: int | None = None) -> None:
        """A stage begins."""
        with self._lock:
            indented = "  " * len(self._stages) + what
            task = self._live.add_task(indented, total=total, message="")
            self._stages.append(_Stage(what, task, time.monotonic()))
            if not self._console.is_terminal:
                self._say(f"{indented} ...")

    def step(self, message: str = "") -> None:
        """One step of the innermost stage is finished."""
        with self._lock:
            if self._stages:
                self._live.update(self._stages[-1].task, advance=1, message=message)

    def note(self, message: str) -> None:
        """A line that stays."""
        with self._lock:
            self._say("  " * len(self._stages) + message)

    def done(self) -> None:
        """The innermost stage is over."""
        with self._lock:
            if not self._stages:
                return
            stage = self._stages.pop()
            self._live.remove_task(stage.task)
            how = "stopped after" if sys.exc_info()[0] else "done in"  # called from a finally on the way out
            self._say("  " * len(self._stages) + f"{stage.what}: {how} {time.monotonic() - stage.began:.1f} s")

    def _say(self, line: str) -> None:
        self._console.print(line, style="dim", soft_wrap=True)
