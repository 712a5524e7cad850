"""What long work tells of itself while it runs. Pure: rendering is the command line's matter."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """A listener to long work. ``start`` may be called again before ``done``: stages nest."""

    def start(self, what: str, total: int | None = None) -> None:
        """A stage begins; ``total`` is its number of steps when that is known."""
        ...

    def step(self, message: str = "") -> None:
        """One step of the innermost stage is finished."""
        ...

    def note(self, message: str) -> None:
        """Something worth a line of its own."""
        ...

    def done(self) -> None:
        """The innermost stage is over."""
        ...


class NullProgress:
    """Listens to nothing."""

    def start(self, what: str, total: int | None = None) -> None:
        """Ignore."""

    def step(self, message: str = "") -> None:
        """Ignore."""

    def note(self, message: str) -> None:
        """Ignore."""

    def done(self) -> None:
        """Ignore."""
