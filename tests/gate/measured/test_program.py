"""Programs come from where a candidate ran: what the recorder would not write is told apart."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from klineage.gate.measured.program import outline, problem


def view(storage: str, *shape: int, dtype: str = "float32") -> dict[str, Any]:
    stride = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        stride[i] = stride[i + 1] * shape[i + 1]
    return {"storage": storage, "shape": list(shape), "stride": stride, "offset": 0, "dtype": dtype}


def pointer(storage: str, *shape: int) -> dict[str, Any]:
    return {"kind": "ptr", "view": view(storage, *shape), "divisible": 16}


ALLOC = {"op": "alloc", "storage": "made2", "bytes": 4096, "dtype": "float32"}
LAUNCH = {
    "op": "launch", "kernel": "k", "grid": [8, 1, 1], "threads": 128, "smem": 0, "cubin": "c0",
    "params": [pointer("input0", 1024), pointer("made2", 1024), {"kind": "i32", "value": 1024}],
}  # fmt: skip
PART = {"op": "alloc", "storage": "made3", "bytes": 4, "dtype": "float32"}
SUM = {"op": "reduce", "how": "sum", "view": view("made3", 32), "source": view("made2", 32, 32), "dims": [1],
       "keep": False}  # fmt: skip
PROGRAM: dict[str, Any] = {"steps": [ALLOC, LAUNCH, PART, SUM], "outputs": [view("made3", 32)], "impossible": ""}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The program with one place changed."""
    program = copy.deepcopy(PROGRAM)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place: Any = program
    for part in parents:
        place = place[part]
    place[last] = value
    return program


def with_step(step: dict[str, Any], at: int = 4) -> dict[str, Any]:
    program = copy.deepcopy(PROGRAM)
    program["steps"].insert(at, step)
    return program


FORGED = {
    "no program": None,
    "a list": [],
    "no steps": {"outputs": [], "impossible": ""},
    "a field too many": {**PROGRAM, "also": 1},
    "an unknown step": with_step({"op": "matmul", "view": view("made3", 32)}),
    "an unknown sum": changed("steps/3/how", "matmul"),
    "a sum of an input": changed("steps/3/source", view("input0", 32, 32)),
    "a sum of a copy of an input": with_step({"op": "copy", "view": view("made2", 32, 32),
                                              "source": view("input0", 32, 32)}, at=1),
    "a sum that sums nothing": changed("steps/3/view", view("made3", 32, 32)),
    "a sum to another shape": changed("steps/3/view", view("made3", 16)),
    "a sum before the launch": {**PROGRAM, "steps": [ALLOC, PART, SUM, LAUNCH]},
    "a storage made twice": with_step(dict(ALLOC)),
    "an input made anew": changed("steps/0/storage", "input0"),
    "an input there is none of": changed("steps/1/params/0/view/storage", "input1"),
    "an unknown output": changed("outputs/0/storage", "made9"),
    "an unknown binary": changed("steps/1/cubin", "c1"),
    "a number where a tensor was": changed("steps/1/params/0", {"kind": "ptr", "value": 4096}),
    "a float for an integer": changed("steps/1/params/2/value", 0.5),
    "a type there is none of": changed("steps/1/params/2/kind", "i128"),
    "an attribute of torch for a type": changed("steps/3/view/dtype", "load"),
    "a type of an allocation": changed("steps/0/dtype", "save"),
    "a negative size": changed("steps/0/bytes", -1),
    "a negative offset": changed("steps/3/view/offset", -4),
    "a stride too few": changed("steps/3/view/stride", []),
    "an empty grid": changed("steps/1/grid", [0, 1, 1]),
    "a grid beyond the hardware": changed("steps/1/grid", [1, 65536, 1]),
    "too many threads": changed("steps/1/threads", 2048),
    "data that is none": with_step({"op": "data", "storage": "made8", "data": "text"}),
    "a copy between unlike shapes": with_step({"op": "copy", "view": view("made3", 7), "source": view("made2", 6)}),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
def test_what_the_recorder_does_not_write_is_told(what: str):
    assert problem(FORGED[what], ["c0"], inputs=1)


@pytest.mark.parametrize(
    "program",
    [
        PROGRAM,
        {"impossible": "it computes with torch.add"},
        with_step({"op": "data", "storage": "made8", "data": torch.zeros(8, dtype=torch.uint8)}),
        with_step({"op": "fill", "view": view("made3", 32), "value": float("-inf")}),
        with_step({"op": "copy", "view": view("made2", 8, 32), "source": view("made3", 32)}),
        with_step({"op": "copy", "view": view("made2", 32, 32), "source": view("input0", 32, 32)}),
        changed("steps/1/params/2", {"kind": "i1", "value": True}),
        changed("steps/1/params/2", {"kind": "fp32", "value": 1}),
        changed("steps/3", {**SUM, "dims": [0, 1], "view": view("made3")}),
        changed("steps/3", {**SUM, "keep": True, "view": view("made3", 32, 1)}),
    ],
    ids=[
        "sums up",
        "impossible",
        "data",
        "fill",
        "broadcast copy",
        "copy of an input",
        "flag",
        "integer for a real",
        "sums all",
        "keeps",
    ],
)
def test_what_it_writes_is_in_order(program: dict[str, Any]):
    assert problem(program, ["c0"], inputs=1) == ""


def test_the_outline_tells_programs_apart_that_do_other_things_beside_launching():
    assert outline(PROGRAM) == outline(copy.deepcopy(PROGRAM))
    assert outline(PROGRAM) != outline(with_step({"op": "fill", "view": view("made3", 32), "value": 0}))
    assert outline(PROGRAM) != outline(changed("steps/3/view", view("made3", 64)))
