"""One warm interpreting worker for all tests of the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klineage.gate.workers import Limits, Zygote

RUN = "klineage.gate.interpreter.jobs:run_job"
TRACE = "klineage.gate.interpreter.jobs:trace_job"
Case = dict[str, Any]


@pytest.fixture(scope="session")
def worker() -> Iterator[Zygote]:
    with Zygote("interpret", Limits(wall_s=240)) as zygote:
        yield zygote


@pytest.fixture
def run(worker: Zygote) -> Callable[..., Case]:
    """Run a kernel's text on inputs; gives the answer for the case."""

    def call(source: str, *inputs: Any, **options: Any) -> Case:
        payload = {"source": source, "cases": [{"name": "case", "inputs": list(inputs)}], **options}
        result = worker.run(RUN, payload)
        assert result.ok, f"{result.outcome} {result.error}\n{result.traceback}"
        assert result.value is not None
        return result.value["cases"][0]

    return call


@pytest.fixture
def trace(worker: Zygote) -> Callable[..., list[Case]]:
    """Trace a kernel's text; gives the records of its launches."""

    def call(source: str, *inputs: Any, **options: Any) -> list[Case]:
        payload = {"source": source, "inputs": [list(spec) for spec in inputs], **options}
        result = worker.run(TRACE, payload)
        assert result.ok, f"{result.outcome} {result.error}\n{result.traceback}"
        assert result.value is not None
        assert result.value["error"] is None, result.value["error"]
        return result.value["launches"]

    return call
