"""Errors a user can act on. Each prints as one line that says what to do, and sets the exit status."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of the command line."""

    OK = 0
    REJECTED = 1  # the gate judged a candidate and did not accept it
    USAGE = 2  # bad input: file, task, target, package, option
    UNAVAILABLE = 3  # the machine lacks something (store unreadable, tool missing)
    INTERRUPTED = 130  # Ctrl-C; what was finished is kept


class KLineageError(Exception):
    """Base of every error raised on purpose; ``message`` is one line, ``fix`` says what to do."""

    exit_status: Exit = Exit.USAGE

    def __init__(self, message: str, fix: str = "") -> None:
        self.message = " ".join(message.split())
        self.fix = " ".join(fix.split())
        super().__init__(f"{self.message} — {self.fix}" if self.fix else self.message)


class KernelError(KLineageError):
    """A kernel source that cannot be read as a Triton module."""


class TaskError(KLineageError):
    """A task file that is missing something, or that a trivial kernel would pass."""


class TargetError(KLineageError):
    """An architecture KLineage does not know."""


class PackageError(KLineageError):
    """An expert's package is not installed or does not hold the function named."""


class StoreError(KLineageError):
    """A store that cannot be opened, read or written."""

    exit_status = Exit.UNAVAILABLE


class EnvironmentLackError(KLineageError):
    """Something the machine must have is missing."""

    exit_status = Exit.UNAVAILABLE


class HarnessError(KLineageError):
    """The judge itself broke; never a statement about a candidate."""

    exit_status = Exit.UNAVAILABLE
