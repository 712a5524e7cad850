"""``find`` and ``calls`` of ``surface.query`` with the walk remembered: moves ask many questions of few nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import libcst as cst

from ..surface.query import is_call, walk

N = TypeVar("N", bound=cst.CSTNode)


@lru_cache(maxsize=2048)
def _below(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    return tuple(walk(node))


@lru_cache(maxsize=4096)
def _of_kind(node: cst.CSTNode, kind: type[cst.CSTNode]) -> tuple[cst.CSTNode, ...]:
    return tuple(n for n in _below(node) if isinstance(n, kind))


def find(node: cst.CSTNode, kind: type[N], where: Callable[[N], bool] | None = None) -> list[N]:
    """All nodes of a type below (and including) ``node``, in source order."""
    return [n for n in _of_kind(node, kind) if isinstance(n, kind) and (where is None or where(n))]


def calls(node: cst.CSTNode, *names: str) -> list[cst.Call]:
    """Calls below ``node``; with names, only those of one of them (see ``surface.query.calls``)."""
    return [c for c in find(node, cst.Call) if not names or is_call(c, *names)]
