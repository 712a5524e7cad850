"""Results of a gate score as JSON lines, written as they come: a run that was killed goes on where it ended."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from ..errors import KLineageError


class ScoreFile:
    """One object a line, ``{"key": ..., "kind": ..., "result": {...}}``, the last of a key holds; thread-safe.

    Lines cut short by the end of a run are passed over. Raises KLineageError when the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            self._file = path.open("a", encoding="utf-8")
            if text and not text.endswith("\n"):
                self._file.write("\n")
        except OSError as error:
            raise KLineageError(f"cannot use {path}: {error.strerror}", "name another file") from None
        for line in text.splitlines():
            try:
                told = json.loads(line)
                self._known[told["key"]] = told["result"]
            except (ValueError, KeyError, TypeError):
                continue

    def get(self, key: str) -> dict[str, Any] | None:
        """The result of an earlier run, or None."""
        return self._known.get(key)

    def add(self, key: str, kind: str, result: dict[str, Any]) -> None:
        """Write one result; it is in the file when this returns."""
        with self._lock:
            self._file.write(json.dumps({"key": key, "kind": kind, "result": result}) + "\n")
            self._file.flush()
            self._known[key] = result

    def close(self) -> None:
        """Close the file."""
        self._file.close()
