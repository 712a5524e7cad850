# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The trusted GPU worker: replays captured launches, compares their outputs with the oracle, and times them.

It never imports a candidate. Run as ``python -m klineage.gate.measured.worker FD``; requests and replies are frames of
``klineage.gate.wire``. It ends itself after an error that costs the CUDA context, and is replaced.
"""

from __future__ import annotations

import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...model import Case
from ...task import Task, compare, load_task
from .. import wire
from . import device
from . import peaks as rates
from .bench_values import BenchValues, Seal
from .clocks import Clocks
from .device import CudaError
from .replay import Buffer, Driver, Impossible, Loader, Replay, place
from .timer import Clock, Run, Timer
from .timer import compare as race

_REQUEST_BYTES = 1 << 36


class Worker:
    """Answers one request at a time. What it drives can be given, so that it can be tried without a GPU."""

    def __init__(self, driver: Loader, clock: Timer, facts: dict[str, Any], peaks: Callable[[Path], dict[str, float]]):
        self.driver, self.clock, self.facts, self._peaks = driver, clock, facts, peaks
        self.peaks: dict[str, float] | None = None
        self.tasks: dict[str, Task] = {}
        self.values = BenchValues(int(facts["memory_bytes"]))
        self.seal = Seal()
        self.clocks = Clocks(str(facts.get("uuid", "")))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request. Raises CudaError when the context is lost."""
        return getattr(self, f"do_{request['do']}")(request)

    def do_device(self, request: dict[str, Any]) -> dict[str, Any]:
        """Facts and measured rates of the device."""
        self.peaks = self.peaks or self._peaks(Path(request["cache_dir"]))
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
            device.wait()
            answers.append([o.to("cpu", copy=True) for o in replay.outputs])
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

    def do_release(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Give unused memory back, for a child that is about to use the device."""
        if device.DEVICE == "cuda":
            torch.cuda.empty_cache()
        return {}

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time a bench case against the incumbent, if any, and each vendor.

        Replies {"us", "interval", "ratio", "ratio_interval", "vendors", "rounds", "clock_mhz", "complaint"}; times in
        microseconds; ratio is over the incumbent.
        """
        task = self.tasks[request["task"]]
        case = Case.model_validate(request["case"])
        sets = self.values.sets(task, case)
        placed = [place(values) for values in sets]
        mine = [Replay(self.driver, request["program"], request["cubins"], buffers) for buffers in placed]
        sealed = [self.seal.of(_kept(task, buffers)) for buffers in placed]
        runs = [_run(task, r, values) for r, values in zip(mine, sets, strict=True)]
        reply: dict[str, Any] = {"vendors": {}, "complaint": "", "ratio": None, "ratio_interval": None}
        against = self._against(task, request, sets, placed) or {"": runs}
        for name, side in against.items():
            compared, complaint = race(
                self.clock, runs, side, lambda number: self.values.wrong(task, case, mine[number].outputs, number)
            )
            if complaint:
                return {**reply, "complaint": complaint}
            if "us" not in reply or name == "incumbent":
                first = compared.first
                reply |= {"us": first.value, "interval": [first.low, first.high], "rounds": compared.rounds}
            if name == "incumbent":
                ratio = compared.ratio
                reply |= {"ratio": ratio.value, "ratio_interval": [ratio.low, ratio.high]}
            elif name:
                reply["vendors"][name] = compared.second.value
        clock = self.clocks.read()
        return reply | {"clock_mhz": clock, "complaint": self._left_behind(task, case, mine, placed, sealed)}

    def _against(
        self, task: Task, request: dict[str, Any], sets: list[list[Any]], placed: list[dict[str, Buffer]]
    ) -> dict[str, list[Run]]:
        """What a candidate is timed against, in turn: the incumbent, the vendors that know the case."""
        against: dict[str, list[Run]] = {}
        if request.get("incumbent"):
            other = [Replay(self.driver, request["incumbent"], request["incumbent_cubins"], b) for b in placed]
            against["incumbent"] = [_run(task, r, values) for r, values in zip(other, sets, strict=True)]
        if not request.get("only_incumbent"):
            against |= {name: side for name, call in _vendors(task) if (side := _vendor(call, sets))}
        return against

    def _left_behind(
        self,
        task: Task,
        case: Case,
        mine: Sequence[Replay],
        placed: Sequence[dict[str, Buffer]],
        sealed: Sequence[dict[str, int]],
    ) -> str:
        """What timed calls wrote that they should not have, or "": it could be answers kept for the next call."""
        broken = next((why for why in (r.broken() for r in mine) if why), "")
        if broken:
            return f"case {case.name}: {broken}"
        for buffers, before in zip(placed, sealed, strict=True):
            after = self.seal.of(_kept(task, buffers))
            changed = next((name for name in before if after[name] != before[name]), None)
            if changed is not None:
                return f"case {case.name}: a timed call modified input {changed.removeprefix('input')}"
        return ""

    def do_bench_outputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Look at a bench case's outputs from an isolated child (of the first input set); time the vendors."""
        task = self.tasks[request["task"]]
        case = Case.model_validate(request["case"])
        sets = self.values.sets(task, case)
        vendors: dict[str, float] = {}
        for name, call in _vendors(task):
            side = _vendor(call, sets)
            if side:
                vendors[name] = race(self.clock, side, side)[0].first.value
        outputs = device.moved(request["outputs"])
        clock = self.clocks.read()
        return {"vendors": vendors, "clock_mhz": clock, "complaint": self.values.wrong(task, case, outputs, 0)}


def _kept(task: Task, buffers: dict[str, Buffer]) -> dict[str, Buffer]:
    """The inputs that a call may not change."""
    return {n: b for n, b in buffers.items() if int(n.removeprefix("input")) not in task.info.in_place}


def _vendor(call: Callable[..., Any], sets: list[list[Any]]) -> list[Run]:
    """Calls of a vendor on copies of its own of each set; none when it lacks this case."""
    placed = [device.moved(values) for values in sets]
    try:
        with torch.no_grad():
            call(*placed[0])
        device.wait()
    except CudaError:
        raise
    except Exception:
        return []

    def bound(values: list[Any]) -> Callable[[], object]:
        return lambda: call(*values)

    return [Run(bound(values)) for values in placed]


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


def on_this_gpu() -> Worker:
    """A worker on the first visible GPU."""
    torch.set_num_threads(4)
    driver, clock, facts = Driver(), Clock(), rates.device_facts()
    return Worker(driver, clock, facts, lambda cache_dir: rates.peaks(clock, facts, cache_dir))


def serve(connection: socket.socket, worker: Worker) -> int:
    """Answer requests until the connection closes; 3 when the context was lost."""
    wire.send(connection, {"ready": True, "facts": worker.facts})
    while True:
        try:
            request = wire.receive(connection, _REQUEST_BYTES)
        except wire.WireError:
            return 0
        reply = _answer(worker, request)
        wire.send(connection, reply)
        if reply.get("lost"):
            return 3


def _answer(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": True, **worker.answer(request)}
    except Impossible as error:
        return {"ok": True, "impossible": str(error)}
    except torch.cuda.OutOfMemoryError:
        worker.do_release({})
        return {"ok": True, "impossible": "the device's memory does not hold what it allocates"}
    except CudaError as error:
        if not error.sticky:  # a launch beyond what the device has
            return {"ok": True, "refused": str(error)}
        return {"ok": False, "error": str(error), "lost": True}
    except RuntimeError as error:  # torch reports a lost context so
        text = " ".join(str(error).split())[:300]
        return {"ok": False, "error": text, "lost": "CUDA error" in text or "CUDA driver" in text}
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return {"ok": False, "error": text, "lost": False}


def main(arguments: Sequence[str]) -> int:
    """Serve on the socket of that descriptor."""
    return serve(socket.socket(fileno=int(arguments[0])), on_this_gpu())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
