# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The trusted worker: holds the GPU, the task and its oracle; replays candidates' binaries, checks and times them.

It never imports a candidate. Run as ``python -m klineage.gate.measured.worker FD``; requests and replies are frames of
``klineage.gate.wire``. It ends itself after an error that costs the CUDA context, and is replaced.
"""

from __future__ import annotations

import math
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...model import Case
from ...task import Task, compare, load_task
from ...task.tolerance import EPS32, row_errors
from .. import wire
from . import peaks as rates
from .replay import CudaError, Driver, Impossible, Replay, place
from .timer import Clock, Run
from .timer import compare as race

_SETS = 3  # of a bench case's inputs, at other addresses and with other values
_SET_BYTES = 24 << 30
_REQUEST_BYTES = 1 << 36
_KEPT = 6  # bench cases whose inputs stay on the device


@dataclass(frozen=True)
class _Own:
    """The native reference's error against the fp32 one, and its dtypes, by output."""

    errors: list[float]
    dtypes: list[torch.dtype]


class Worker:
    """Answers one request at a time."""

    def __init__(self) -> None:
        torch.set_num_threads(4)
        self.driver = Driver()
        self.clock = Clock()
        self.facts = rates.device_facts()
        self.peaks: dict[str, float] | None = None
        self.tasks: dict[str, Task] = {}
        self.inputs: dict[tuple[str, str], list[list[Any]]] = {}
        self.expected: dict[tuple[str, str, int], Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request. Raises CudaError when the context is lost."""
        return getattr(self, f"do_{request['do']}")(request)

    def do_device(self, request: dict[str, Any]) -> dict[str, Any]:
        """Facts and measured rates of the device."""
        self.peaks = self.peaks or rates.peaks(self.clock, self.facts, Path(request["cache_dir"]))
        return {"facts": self.facts, "peaks": self.peaks}

    def do_task(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load a task file; its fresh seeds follow from the salt."""
        self.tasks[request["task"]] = load_task(request["path"], check=False).salted(request["salt"])
        return {}

    def do_check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Correctness of each case: {"results": [{case, status, reason, error, allowed}]}; stops at the first failure.

        ``impossible`` says why nothing can be said here.
        """
        task, results = self.tasks[request["task"]], []
        for asked in request["cases"]:
            case = Case.model_validate(asked["case"])
            result = self._check(task, case, asked["program"], request["cubins"])
            results.append(result)
            if result["status"]:
                break
        return {"results": results}

    def _check(self, task: Task, case: Case, program: dict[str, Any], cubins: dict[str, bytes]) -> dict[str, Any]:
        inputs = task.make_inputs(case)
        replay = Replay(self.driver, program, cubins, place(inputs))
        answers: list[list[torch.Tensor]] = []
        for again in range(2):
            if again and task.info.in_place:
                replay = Replay(self.driver, program, cubins, place(inputs))
            replay.poison()
            replay.run()
            _wait()
            answers.append([o.cpu() for o in replay.outputs])
        refused = replay.broken()
        changed = [i for i in replay.changed(inputs) if i not in task.info.in_place]
        if refused:
            return _refusal(case, "rejected_numeric", refused)
        if changed:
            return _refusal(case, "rejected_hack", f"input {changed[0]} was modified and the task is not in place")
        if aliased := _aliases(program, task):
            return _refusal(case, "rejected_hack", aliased)
        judged = [compare(task, case, outputs) for outputs in answers]
        wrong = next((j for j in judged if not j.passed), None)
        if wrong is None:
            return {**judged[0].model_dump(), "status": ""}
        moving = any(not _same(a, b) for a, b in zip(*answers, strict=True))
        reason = wrong.reason + ("; two runs differ: a race" if moving else "")
        return {**wrong.model_dump(), "reason": reason, "status": "rejected_numeric"}

    def do_outputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compare outputs that an isolated child gave for a case."""
        task = self.tasks[request["task"]]
        return compare(task, Case.model_validate(request["case"]), request["outputs"]).model_dump()

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time a bench case against the incumbent, if any, and each vendor.

        Replies {"us", "interval", "ratio", "ratio_interval", "vendors", "rounds", "complaint", "invalid"}; times in
        microseconds; ratio is over the incumbent.
        """
        task = self.tasks[request["task"]]
        case = Case.model_validate(request["case"])
        sets = self._sets(task, case)
        placed = [place(values) for values in sets]
        mine = [Replay(self.driver, request["program"], request["cubins"], buffers) for buffers in placed]
        runs = [_run(task, r, values) for r, values in zip(mine, sets, strict=True)]
        against: dict[str, list[Run]] = {}
        if request.get("incumbent"):
            other = [Replay(self.driver, request["incumbent"], request["incumbent_cubins"], b) for b in placed]
            against["incumbent"] = [_run(task, r, values) for r, values in zip(other, sets, strict=True)]
        for name, call in () if request.get("only_incumbent") else _vendors(task):
            against[name] = self._vendor(call, sets)
        reply: dict[str, Any] = {"vendors": {}, "complaint": "", "ratio": None, "ratio_interval": None}
        for name, side in against.items():
            if not side:
                continue
            compared, complaint = race(self.clock, runs, side, lambda number: self._spoiled(task, case, mine, number))
            if complaint:
                return {**reply, "complaint": complaint}
            if "us" not in reply or name == "incumbent":
                first = compared.first
                reply |= {"us": first.value, "interval": [first.low, first.high], "rounds": compared.rounds}
            if name == "incumbent":
                ratio = compared.ratio
                reply |= {"ratio": ratio.value, "ratio_interval": [ratio.low, ratio.high]}
            else:
                reply["vendors"][name] = compared.second.value
        return reply

    def do_bench_outputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Look at a bench case's outputs from an isolated child (of the first input set); time the vendors."""
        task = self.tasks[request["task"]]
        case = Case.model_validate(request["case"])
        sets = self._sets(task, case)
        vendors: dict[str, float] = {}
        for name, call in _vendors(task):
            side = self._vendor(call, sets)
            if side:
                vendors[name] = race(self.clock, side, side)[0].first.value
        outputs = [o.cuda() for o in request["outputs"]]
        return {"vendors": vendors, "complaint": self._wrong(task, case, outputs, 0)}

    def _vendor(self, call: Callable[..., Any], sets: list[list[Any]]) -> list[Run]:
        placed = [[v.cuda() if isinstance(v, torch.Tensor) else v for v in values] for values in sets]
        try:
            with torch.no_grad():
                call(*placed[0])
            torch.cuda.synchronize()
        except Exception:  # a vendor that lacks this case is left out
            return []

        def bound(values: list[Any]) -> Callable[[], object]:
            return lambda: call(*values)

        return [Run(bound(values)) for values in placed]

    def _sets(self, task: Task, case: Case) -> list[list[Any]]:
        key = (task.id, case.name)
        if key not in self.inputs:
            if len(self.inputs) >= _KEPT:
                oldest = next(iter(self.inputs))
                del self.inputs[oldest]
                self.expected = {k: v for k, v in self.expected.items() if k[:2] != oldest}
            first = list(task.make_inputs(case))
            size = sum(v.untyped_storage().nbytes() for v in first if isinstance(v, torch.Tensor))
            sets = [first]
            while len(sets) < _SETS and size * (len(sets) + 1) <= _SET_BYTES:
                sets.append([_moved(v, len(sets)) for v in first])
            self.inputs[key] = sets
        return self.inputs[key]

    def _spoiled(self, task: Task, case: Case, mine: list[Replay], number: int) -> str:
        """What is wrong with the outputs that the last timed call on an input set left, or ""."""
        return self._wrong(task, case, mine[number].outputs, number)

    def _wrong(self, task: Task, case: Case, outputs: Sequence[torch.Tensor], number: int) -> str:
        expected, own = self._expected(task, case, number, self._sets(task, case)[number])
        if [(o.shape, o.dtype) for o in outputs] != [(e.shape, n) for e, n in zip(expected, own.dtypes, strict=True)]:
            return f"case {case.name}: outputs of another form than the reference's"
        for index, (got, wanted) in enumerate(zip(outputs, expected, strict=True)):
            if not wanted.is_floating_point():
                if not torch.equal(got, wanted):
                    return f"case {case.name}: integer values of a timed call differ"
                continue
            floor = 2 * torch.finfo(got.dtype).eps + 8 * EPS32 * math.sqrt(max(1, task.reduction(case)))
            error = float(_errors(got, wanted).max())
            allowed = task.info.tolerance.override or min(max(4 * own.errors[index], floor), 16 * floor)
            if not error <= allowed:
                return f"case {case.name}: a timed call's error is {error:.3g}, allowed {allowed:.3g}"
        return ""

    def _expected(self, task: Task, case: Case, number: int, inputs: list[Any]) -> tuple[list[torch.Tensor], _Own]:
        """The reference in fp32 on the device, and the error of the native reference against it."""
        key = (task.id, case.name, number)
        if key not in self.expected:
            placed = [v.cuda() if isinstance(v, torch.Tensor) else v for v in inputs]
            raised = [v.float() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in placed]
            with torch.no_grad():
                native, exact = _listed(task.reference(*placed)), _listed(task.reference(*raised))
            own = [
                float(_errors(n, e).max()) if n.is_floating_point() else 0.0 for n, e in zip(native, exact, strict=True)
            ]
            self.expected[key] = (exact, _Own(own, [n.dtype for n in native]))
        return self.expected[key]


def _errors(got: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Largest relative error per row, a slab of rows at a time."""
    rows = got.reshape(-1, got.shape[-1]) if got.dim() > 1 else got.reshape(1, -1)
    against = wanted.reshape(rows.shape)
    slab = max(1, (1 << 26) // max(1, rows.shape[1]))
    parts = [row_errors(rows[i : i + slab], against[i : i + slab], got.dtype) for i in range(0, rows.shape[0], slab)]
    return torch.nan_to_num(torch.cat(parts), nan=math.inf)


def _moved(value: Any, number: int) -> Any:
    """Other values of the same kind and layout: the storage's elements rolled along by some rows."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or not value.is_floating_point():
        return value.clone() if isinstance(value, torch.Tensor) else value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value.roll(number, 0))


def _aliases(program: dict[str, Any], task: Task) -> str:
    for index, view in enumerate(program["outputs"]):
        name = view["storage"]
        if name.startswith("input") and int(name.removeprefix("input")) not in task.info.in_place:
            return f"output {index} shares memory with input {name.removeprefix('input')}"
    return ""


def _refusal(case: Case, status: str, reason: str) -> dict[str, Any]:
    return {"case": case.name, "passed": False, "error": None, "allowed": None, "reason": reason, "status": status}


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(torch.nan_to_num(a.double()), torch.nan_to_num(b.double()))


def _run(task: Task, replay: Replay, inputs: Sequence[Any]) -> Run:
    """A program to time; what it is to change is put back before."""
    if not task.info.in_place:
        return Run(replay.run, replay.poison)
    fresh = place([v if i in task.info.in_place else None for i, v in enumerate(inputs)])

    def prepare() -> None:
        replay.poison()
        for name, buffer in fresh.items():
            replay.buffers[name].content().copy_(buffer.content())

    return Run(replay.run, prepare)


def _vendors(task: Task) -> Iterable[tuple[str, Callable[..., Any]]]:
    return (task.vendors or {"reference": task.reference}).items()


def _listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _wait() -> None:
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise CudaError(700, " ".join(str(error).split())[:200]) from None


def serve(connection: socket.socket) -> int:
    """Answer requests until the connection closes; 3 when the context was lost."""
    worker = Worker()
    wire.send(connection, {"ready": True, "facts": worker.facts})
    while True:
        try:
            request = wire.receive(connection, _REQUEST_BYTES)
        except wire.WireError:
            return 0
        lost = False
        try:
            reply = {"ok": True, **worker.answer(request)}
        except Impossible as error:
            reply = {"ok": True, "impossible": str(error)}
        except CudaError as error:
            reply, lost = {"ok": False, "error": str(error), "lost": error.sticky}, error.sticky
        except RuntimeError as error:  # torch reports a lost context so
            text = " ".join(str(error).split())[:300]
            lost = "CUDA error" in text or "CUDA driver" in text
            reply = {"ok": False, "error": text, "lost": lost}
        except Exception as error:
            traceback.print_exc()
            reply = {
                "ok": False,
                "error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
                "lost": False,
            }
        wire.send(connection, reply)
        if lost:
            return 3


def main(arguments: Sequence[str]) -> int:
    """Serve on the socket of that descriptor."""
    return serve(socket.socket(fileno=int(arguments[0])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
