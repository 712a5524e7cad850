"""Every fault of Triton's interpreter that the patches cure: wrong without them, right with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate.interpreter import interpreter_faults
from gate.interpreter.interpreter_faults import FAULTS, Fault, right

BY_NAME = pytest.mark.parametrize("fault", FAULTS, ids=[f.name for f in FAULTS])


@pytest.fixture(scope="session")
def unpatched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Outcome by fault in a process whose interpreter is Triton's own."""
    result = tmp_path_factory.mktemp("unpatched") / "result.txt"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1"}
    script = str(Path(interpreter_faults.__file__))
    subprocess.run([sys.executable, "-W", "ignore", script, str(result)], env=environment, check=True, timeout=300)
    return dict(line.split() for line in result.read_text().splitlines())


@BY_NAME
def test_the_unpatched_interpreter_is_wrong(fault: Fault, unpatched: dict[str, str]) -> None:
    assert unpatched[fault.name] == "wrong"


@BY_NAME
def test_the_patched_interpreter_is_right(fault: Fault, run: Callable[..., Any]) -> None:
    case = run(fault.source, *fault.inputs)
    assert case["error"] is None, case["error"]
    answer = case["outputs"][0]
    assert right(fault, answer), f"{answer.flatten()[:8]} is not {fault.expected(*fault.inputs).flatten()[:8]}"
