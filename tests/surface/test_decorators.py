"""Decorators of a package go, or others stand in their place; the rest of the text stays."""

from __future__ import annotations

import pytest

from klineage.errors import KernelError
from klineage.surface.decorators import replace_decorators

SOURCE = """
@dispatch('ops')
@guard  # copies
def launch(x):
    return dispatch(x)


@cached_tune(
    configs=[Config(n) for n in (1, 2)],
    key=['N'],
)
@triton.jit
def kernel(x, N):
    pass
"""


def test_a_name_that_decorates_nothing_is_refused() -> None:
    with pytest.raises(KernelError, match="no decorator named tuned"):
        replace_decorators(SOURCE, {"guard": "", "tuned": ""})


def test_text_that_is_not_python_is_refused() -> None:
    with pytest.raises(KernelError, match="syntax error"):
        replace_decorators("def (", {})


def test_nothing_known_changes_nothing() -> None:
    assert replace_decorators(SOURCE, {}) == SOURCE


def test_dropped_and_renamed_decorators() -> None:
    changed = replace_decorators(SOURCE, {"dispatch": "", "guard": "", "cached_tune": "triton.autotune"})
    expected = SOURCE.replace("@dispatch('ops')\n", "").replace("@guard  # copies\n", "")
    assert changed == expected.replace("cached_tune", "triton.autotune")
    assert "return dispatch(x)" in changed
