"""What stands behind the tools: one session, made when it is first needed, used by one request at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from ..agent import Desk
from ..api import Session
from ..errors import KLineageError
from ..model import Skill
from ..task.loader import shipped_tasks

T = TypeVar("T")
BEAT_S = 1.0  # how often progress is told
Tell = Callable[[float, str], Awaitable[None]]  # seconds, words


class Service:
    """One session made when it is first needed, used by one request at a time."""

    def __init__(self, make: Callable[[], Session], tasks: Sequence[str], skills: Sequence[Skill] | None) -> None:
        self._make = make
        self._tasks = {Path(t).stem: str(Path(t).resolve()) for t in tasks} | {str(Path(t)): t for t in tasks}
        self._skills = skills
        self._desk: Desk | None = None
        self._lock = threading.Lock()

    def task(self, name: str) -> str:
        """A task that agents may use: task files are code, so only those that the user named and the shipped ones.

        Raises KLineageError for any other.
        """
        shipped = shipped_tasks()
        if name in self._tasks:
            return self._tasks[name]
        if name in shipped:
            return name
        raise KLineageError(f"no task {name!r}", f"tasks: {', '.join([*shipped, *self._tasks])}")

    def close(self) -> None:
        """Stop the session's workers."""
        with self._lock:
            if self._desk is not None:
                self._desk.session.close()
                self._desk = None

    async def ask(self, tell: Tell, what: str, work: Callable[[Desk], T]) -> T:
        """Do ``work`` on a thread, telling progress while it lasts.

        Raises KLineageError for what the agent can mend.
        """

        settled: list[T | KLineageError] = []

        async def beat() -> None:
            began = time.monotonic()
            while True:
                seconds = time.monotonic() - began
                await tell(seconds, f"{what}: {seconds:.0f} s")
                await anyio.sleep(BEAT_S)

        async with anyio.create_task_group() as group:
            group.start_soon(beat)
            settled.append(await anyio.to_thread.run_sync(self._settled, work))
            group.cancel_scope.cancel()
        done = settled[0]
        if isinstance(done, KLineageError):
            raise done
        return done

    def _settled(self, work: Callable[[Desk], T]) -> T | KLineageError:
        try:
            return self._locked(work)
        except KLineageError as error:
            return error

    def _locked(self, work: Callable[[Desk], T]) -> T:
        with self._lock:
            if self._desk is None:
                self._desk = Desk(self._make(), self._skills)
            return work(self._desk)
