"""The same work over the Model Context Protocol (the ``mcp`` extra), on stdio or on loopback."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import EnvironmentLackError
from ..model import Skill
from ..store.base import Store


def serve(
    target: str, store: Store, tasks: Sequence[str], skills: Sequence[Skill] | None, port: int | None, jobs: int
) -> None:
    """Serve until the client goes away (stdio) or the process is stopped (HTTP on loopback ``port``).

    Raises EnvironmentLackError when the extra is not installed.
    """
    try:
        from .server import run
    except ImportError as error:
        raise EnvironmentLackError(f"serving MCP needs {error.name or 'mcp'}", "pip install 'klineage[mcp]'") from error
    run(target, store, tasks, skills, port, jobs)


__all__ = ["serve"]
