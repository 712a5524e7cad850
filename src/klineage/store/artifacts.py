"""Artifacts: files named by the SHA-256 of their content, written whole or not at all, verified when read."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from ..errors import StoreError


class ArtifactFolder:
    """A folder of files ``ab/cdef...``, named by content hash."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: str) -> Path:
        """Where the artifact of this hash lies (whether or not it is there)."""
        return self.root / digest[:2] / digest[2:]

    def put(self, data: bytes) -> str:
        """Write ``data`` (temporary file, fsync, rename, fsync of the folder) and return its hash.

        Raises StoreError when the folder cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
                return digest
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(path, data)
        except OSError as error:
            raise StoreError(
                f"cannot write artifact under {self.root}: {error.strerror or error}",
                "free some disk space or choose another place with --store",
            ) from error
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes whose hash is ``digest``.

        Raises StoreError when the file is missing or its content no longer has that hash.
        """
        try:
            data = self.path(digest).read_bytes()
        except OSError as error:
            raise StoreError(f"artifact {digest[:12]} is missing from {self.root}", "run the work again") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(
                f"artifact {digest[:12]} in {self.root} is damaged", "delete that file and run the work again"
            )
        return data


def _write_whole(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` so that a kill leaves the old state or the new, never a part."""
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
