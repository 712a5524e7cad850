"""What a module asks of the device when it is loaded is written out; function bodies stay as they are."""

from __future__ import annotations

import pytest

from klineage.errors import KernelError
from klineage.surface.pinned import pin_facts

CASES = {
    "assigned-name": ("BIG = (platform() == 'cuda')\n", {"BIG": True}, "BIG = True\n"),
    "call": ("SIZES = [1] if wide() else [2]\n", {"wide()": False}, "SIZES = [2]\n"),
    "call-with-argument": ("A = wide('x') or slow()\n", {"wide('x')": True}, "A = True\n"),
    "not-and": ("A = not old and B\n", {"old": False}, "A = B\n"),
    "or-of-three": ("A = old or B or C\n", {"old": False}, "A = (B or C)\n"),
    "branch": ("if big:\n    N = 2  # two\nelse:\n    N = 1\n", {"big": True}, "N = 2  # two\n"),
    "elif": (
        "if big:\n    N = 3\nelif B:\n    N = 2\nelse:\n    N = 1\n",
        {"big": False},
        "if B:\n    N = 2\nelse:\n    N = 1\n",
    ),
    "branch-not-taken": ("if big:\n    N = 3\nM = 1\n", {"big": False}, "M = 1\n"),
    "decorator": ("@tune([2] if big else [1], **extra)\ndef f(x):\n    pass\n", {"big": True, "extra": {}},
                  "@tune([2])\ndef f(x):\n    pass\n"),
    "starred": ("A = [*([] if big else [1]), 2]\n", {"big": False}, "A = [*([1]), 2]\n"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "facts", "expected"), CASES.values(), ids=CASES.keys())
def test_pinned(source: str, facts: dict[str, object], expected: str) -> None:
    assert pin_facts(source, facts) == expected


UNTOUCHED = {
    "function-body": ("def f(x):\n    return 1 if big else 2\n", {"big": True}),
    "lambda": ("f = lambda x: x if big else 2\n", {"big": True}),
    "only-argument": ("f(**{})\n", {}),
    "other-name": ("A = bigger\n", {"big": True}),
    "value-stands": ("big = True\n", {"big": True}),
}


@pytest.mark.parametrize(("source", "facts"), UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_untouched(source: str, facts: dict[str, object]) -> None:
    assert pin_facts(source, facts) == source


def test_text_that_is_not_python_is_refused() -> None:
    with pytest.raises(KernelError, match="syntax error"):
        pin_facts("def (", {})
