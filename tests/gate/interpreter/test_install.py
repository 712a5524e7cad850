"""Importing the package in a process that does not interpret changes nothing."""

from __future__ import annotations

import pytest
from triton.runtime import interpreter as native

import klineage.gate.interpreter as package
from klineage.errors import HarnessError


def test_install_is_refused_without_the_interpreter() -> None:
    with pytest.raises(HarnessError, match="TRITON_INTERPRET=1"):
        package.install()


def test_the_import_patched_nothing() -> None:
    assert native.GridExecutor.__call__.__module__ == "triton.runtime.interpreter"
    package.warm_up()  # nothing to warm here
    assert type(native.interpreter_builder) is native.InterpreterBuilder
    assert all(sentence.endswith(".") for sentence in package.BLIND_SPOTS)
