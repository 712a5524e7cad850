"""Free moves: optimisations that the vocabulary lacks, named by their intent in words."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from ..surface import Module, sites
from ..surface.pyast import parse_ast
from .cached import FREE, compare, normalised

LIKE = 0.5  # share of words two intents have in common to count as one
_IDLE = """
a an and as at be by each every for from in instead into is it its more of on one only or over so some than that the
their then this to use used using via we when which with without kernel kernels code make makes remove removes removed
removing add adds added take takes taken out put change replace replaced simplify simplified
"""
_STOP = frozenset(_IDLE.split())
_MAX_NAME = 48


def words(intent: str) -> frozenset[str]:
    """The words of an intent that carry meaning, cut to their stems."""
    found = re.findall(r"[a-z0-9]+", intent.lower().replace("_", " "))
    return frozenset(_stem(w) for w in found if w not in _STOP and len(w) > 1)


def free_name(intent: str) -> str:
    """The name of a free move: "free:" and up to five words of its intent."""
    found = [w for w in re.findall(r"[a-z0-9]+", intent.lower().replace("_", " ")) if w not in _STOP and len(w) > 1]
    slug = "-".join(found[:5])[:_MAX_NAME].strip("-")
    return f"{FREE}{slug or 'unnamed'}"


def alike(first: str, second: str) -> bool:
    """True when two intents say the same: at least half of all their words are common."""
    a, b = words(first), words(second)
    return bool(a & b) and len(a & b) / len(a | b) >= LIKE


@lru_cache(maxsize=4096)
def size(source: str) -> tuple[int, int]:
    """(sites, nodes of the syntax tree): how much there is of a kernel, whatever the vocabulary sees in it."""
    return len(sites(Module.parse(source))), sum(1 for _ in ast.walk(parse_ast(normalised(source))))


def simpler(candidate: str, kernel: str, *, free: bool) -> bool:
    """Whether a candidate's surface is strictly simpler.

    For a move of the vocabulary its amounts must fall (lexicographically, structural moves first). For a free move
    they may stay, and then sites or else code must become fewer: (amounts, sites, nodes) falls, so every walk ends.
    """
    order = compare(candidate, kernel)
    return order < 0 or (free and order == 0 and size(candidate) < size(kernel))


def _stem(word: str) -> str:
    for ending in ("ising", "izing", "ised", "ized", "ise", "ize", "ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
