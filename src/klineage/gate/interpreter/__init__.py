"""Triton kernels on the CPU: the interpreter with its faults cured, checked memory, and traced traffic.

Importing this package in a process that interprets (TRITON_INTERPRET=1 before triton was imported) applies every
patch. In any other process it only gives ``BLIND_SPOTS`` and the payload helpers.
"""

from __future__ import annotations

import os

from .blind_spots import BLIND_SPOTS

__all__ = ["BLIND_SPOTS", "install", "warm_up"]


def install() -> None:
    """Apply every patch, once. Raises HarnessError in a process that does not interpret."""
    from .patch import apply

    apply()


def warm_up() -> None:
    """Run a small kernel once, so that forked workers find everything imported and cached."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        from .warm import run_everything

        run_everything()


if os.environ.get("TRITON_INTERPRET") == "1":
    install()
