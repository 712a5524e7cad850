# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""The jobs a worker runs: ``run_job`` for correctness, ``trace_job`` for traffic. Payload in, payload out.

Both run the candidate's entry under ``PretendCuda`` on CPU tensors.

They take ``source``, ``entry`` (default "run"), ``target`` (default the model's) and, for autotuned kernels,
``config_index`` or ``configs`` (kernel name -> meta-parameters as strings; for ``trace_job`` also a list with one
printed configuration or None per launch).
"""

from __future__ import annotations

import signal
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten

from ...model import DEFAULT_TARGET, target
from ..pretend_cuda import PretendCuda
from ..pretend_cuda import install as pretend_device
from . import autotune
from .driver import set_driver
from .executor import Launch, programs, run_program, set_runner
from .host import HostWatch
from .memory import KernelFault
from .module import load
from .patch import apply
from .provenance import Ledger
from .tamper import TamperWatch
from .trace_ops import Tracer, TraceTooLong, using_builder
from .traffic import LaunchTracer

Payload = dict[str, Any]


class CaseTimeout(BaseException):
    """The case's own time is up."""

    kind = "timeout"


class _Runner:
    """Runs whole grids on checked memory and counts launches."""

    def __init__(self, watch: HostWatch, reverse: bool) -> None:
        self._watch = watch
        self._reverse = reverse
        self.kernels: list[str] = []
        self.grids: list[tuple[int, int, int]] = []
        self.lines: list[int] = []
        self.launches = 0  # those of an empty grid too
        self.scalars = 1
        self.atomics = False
        self.fault: KernelFault | None = None

    def launch(self, launch: Launch) -> None:
        builder = apply()
        self._watch.before_launch(launch.arguments)
        self.launches += not autotune.CHOICE.trying
        if launch.blocks and not autotune.CHOICE.trying:  # an empty grid launches nothing on a GPU either
            self.kernels.append(launch.kernel)
            self.grids.append(launch.grid)
            self.lines.append(launch.function.__code__.co_firstlineno)
            self.scalars = zlib.adler32(_scalars(launch).encode(), self.scalars)
            autotune.CHOICE.launches = len(self.kernels)
        builder.begin_launch(launch.arguments, self._watch.known())
        try:
            with np.errstate(all="ignore"):  # masked lanes divide by zero and overflow, as they do on a GPU
                for program in programs(launch, self._reverse):
                    run_program(builder, launch, program)
                    self.atomics = self.atomics or builder.synchronised
        except KernelFault as fault:
            self.fault = self.fault or fault
            raise
        finally:
            self._watch.after_launch([buffer.storage for buffer in builder.memory.buffers])


def _scalars(launch: Launch) -> str:
    """What the host chose of a launch: grid and numbers."""
    numbers = {k: v for k, v in launch.arguments.items() if isinstance(v, (int, float, str, bool, type(None)))}
    return f"{launch.kernel} {launch.grid} {sorted(numbers.items())}"


def run_job(payload: Payload) -> Payload:
    """Run a kernel on given inputs, every program of every launch.

    ``cases``: a list of {"name", "inputs"}; ``inputs`` are tensors (their strides survive), numbers or None. A case
    with ``again`` (an earlier case's name) finds its inputs at that case's addresses, and runs its programs last to
    first when that case used no atomics. Optional: ``configs`` of a case, ``case_timeout_s``, ``reverse``.
    Answer: {"cases": [{"name", "error" (one line or None), "kind" ("exception", "out_of_bounds", "write_race",
    "read_race", "timeout" or None), "outputs" (copies with their strides, other values as they are), "modified"
    (indices of inputs that changed), "aliases" ([output, input] pairs), "launches", "kernels", "grids", "lines" (where
    each kernel is defined), "scalars"
    (check sum of what the host chose), "atomics", "torch_ops" (names: torch computed with the inputs, or on what
    kernels wrote), "scratch_ops" (all other torch work: {"op", "calls", "elements"}), "unaccounted" (bytes that
    neither kernels nor watched torch calls wrote), "threads" (left running), "wall_s"}], "tampered" (names and
    switches of the process that the candidate changed), "configurations" (the most that any tuner had)}.
    """
    _prepare(payload)
    watch, ledger = TamperWatch(), Ledger()
    entry: Callable[..., Any] | None = None
    failure: Payload = {}
    with PretendCuda("cpu"), HostWatch(poison_allocations=True, ledger=ledger):
        try:
            entry = load(payload["source"], payload.get("entry", "run"))
        except (Exception, KernelFault) as error:
            failure = _failure(error)
    answers: dict[str, Payload] = {}
    for case in payload["cases"]:
        if entry is None:
            answers[case["name"]] = failure
            continue
        first = answers.get(case.get("again", ""), {})
        reverse = bool(payload.get("reverse")) or (bool(first) and not first.get("atomics"))
        answers[case["name"]] = _run_case(
            entry, {**case, "timeout_s": payload.get("case_timeout_s")}, first.pop("storages", None), ledger, reverse
        )
    changes = watch.changes()
    return {
        "cases": [
            {**_EMPTY, "name": case["name"], **{k: v for k, v in answers[case["name"]].items() if k != "storages"}}
            for case in payload["cases"]
        ],
        "tampered": changes,
        "configurations": autotune.CHOICE.most,
    }


_EMPTY: Payload = {
    "error": None,
    "kind": None,
    "outputs": [],
    "modified": [],
    "aliases": [],
    "launches": 0,
    "kernels": [],
    "torch_ops": [],
    "scratch_ops": [],
    "unaccounted": [],
    "grids": [],
    "lines": [],
    "scalars": 0,
    "atomics": False,
    "threads": 0,
    "wall_s": 0.0,
}


def _prepare(payload: Payload) -> None:
    apply()
    where = target(payload.get("target") or DEFAULT_TARGET)
    set_driver(where)
    pretend_device(where)
    autotune.CHOICE.trials, autotune.CHOICE.most = False, 1
    autotune.CHOICE.index = int(payload.get("config_index", 0))
    configs = payload.get("configs") or {}
    autotune.CHOICE.named = configs if isinstance(configs, dict) else {}
    autotune.CHOICE.printed = configs if isinstance(configs, list) else []


def _own_storage(value: Any) -> Any:
    """A tensor on a storage of its own, as long as the bytes it spans, with the same shape and strides."""
    if not isinstance(value, torch.Tensor):
        return value
    span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) if value.numel() else 0
    copy = torch.empty(span, dtype=value.dtype, device="cpu")
    copy.copy_(value.as_strided((span,), (1,)))
    return copy.as_strided(value.shape, value.stride())


def _content(value: Any) -> torch.Tensor | None:
    if not isinstance(value, torch.Tensor):
        return None
    storage = value.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage, 0, (storage.nbytes(),), (1,)).clone()


def _placed(values: list[Any], storages: list[Any] | None) -> list[Any]:
    """Inputs on storages of their own, or on those given: the same addresses, other tensors."""
    fresh = [_own_storage(v) for v in values]
    for number, (value, storage) in enumerate(zip(fresh, storages or (), strict=False)):
        if isinstance(value, torch.Tensor) and storage is not None:
            own = value.untyped_storage()
            if storage.nbytes() == own.nbytes():
                storage.copy_(own)
                fresh[number] = torch.empty(0, dtype=value.dtype, device="cpu").set_(
                    storage, 0, value.shape, value.stride()
                )
    return fresh


def _run_case(
    entry: Callable[..., Any], case: Payload, storages: list[Any] | None, ledger: Ledger, reverse: bool
) -> Payload:
    inputs = _placed(case["inputs"], storages)
    before = [_content(v) for v in inputs]
    watch = HostWatch(poison_allocations=True, ledger=ledger)
    faults = len(ledger.faults)
    watch.take_inputs([v for v in inputs if isinstance(v, torch.Tensor)])
    runner = _Runner(watch, reverse)
    autotune.CHOICE.launches, autotune.CHOICE.trials = 0, True
    autotune.CHOICE.printed = list(case.get("configs") or ())
    previous = set_runner(runner)
    started, threads = time.perf_counter(), _threads()
    answer: Payload = {}
    try:
        with PretendCuda("cpu"), watch, _time_limit(case.get("timeout_s")):
            outcome = entry(*inputs)
        answer = _outputs(outcome, inputs, watch)
    except (Exception, KernelFault, CaseTimeout) as error:
        answer = _failure(runner.fault or error)
    finally:
        set_runner(previous)
    if "error" not in answer and runner.fault is not None:  # the candidate caught a fault and went on
        answer = _failure(runner.fault)
    after = [_content(v) for v in inputs]
    return {
        **answer,
        "launches": runner.launches,
        "kernels": runner.kernels,
        "grids": [list(grid) for grid in runner.grids],
        "lines": runner.lines,
        "scalars": runner.scalars,
        "atomics": runner.atomics,
        "torch_ops": watch.suspicious(),
        "scratch_ops": watch.operators(),
        "unaccounted": ledger.faults[faults:][:3],
        "threads": _threads() - threads,
        "wall_s": time.perf_counter() - started,
        "modified": [i for i, (b, a) in enumerate(zip(before, after, strict=True)) if not _same(b, a)],
        "storages": [v.untyped_storage() if isinstance(v, torch.Tensor) else None for v in inputs],
    }


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def _same(before: torch.Tensor | None, after: torch.Tensor | None) -> bool:
    return before is after or (before is not None and after is not None and torch.equal(before, after))


def _outputs(outcome: Any, inputs: list[Any], watch: HostWatch) -> Payload:
    """The outputs as they are now: copies, so that nothing still running can mend them."""
    leaves, _ = tree_flatten(outcome)
    strange = next((o for o in leaves if not isinstance(o, (torch.Tensor, int, float, bool, str, type(None)))), None)
    if strange is not None:
        return {"error": f"returned a {type(strange).__name__}", "kind": "exception"}
    subclass = next((o for o in leaves if isinstance(o, torch.Tensor) and type(o) is not torch.Tensor), None)
    if subclass is not None and type(subclass) is not torch.nn.Parameter:
        return {"error": f"returned a tensor of class {type(subclass).__name__}", "kind": "exception"}
    bare = next((o for o in leaves if isinstance(o, torch.Tensor) and not _in_memory(o)), None)
    if bare is not None:
        return {"error": f"returned a tensor on {bare.device.type}, {bare.layout}: not in memory", "kind": "exception"}
    watch.check_outputs([o for o in leaves if _occupied(o)])
    places = {v.untyped_storage().data_ptr(): i for i, v in enumerate(inputs) if _occupied(v)}
    aliases = [
        [number, places[o.untyped_storage().data_ptr()]]
        for number, o in enumerate(leaves)
        if _occupied(o) and o.untyped_storage().data_ptr() in places
    ]
    return {"outputs": [_own_storage(o.detach()) if _occupied(o) else o for o in leaves], "aliases": aliases}


def _occupied(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and _in_memory(value) and value.untyped_storage().nbytes() > 0


def _in_memory(value: torch.Tensor) -> bool:
    return not value.is_meta and value.layout is torch.strided


def _failure(error: BaseException) -> Payload:
    kind = getattr(error, "kind", "exception")
    text = " ".join(str(error).split()) or "no message"
    name = "" if kind != "exception" else f"{type(error).__name__}: "
    return {"error": f"{name}{text}"[:500], "kind": kind}


class _TraceRunner:
    """Traces each launch and leaves the rest of the grid out."""

    def __init__(self, watch: HostWatch, waves: list[int]) -> None:
        self._watch = watch
        self._waves = waves
        self._tracer = Tracer()
        self._launches = LaunchTracer(self._tracer)
        self.records: list[Payload] = []

    def launch(self, launch: Launch) -> None:
        if not launch.blocks:
            return
        number = len(self.records)
        wave = self._waves[number] if number < len(self._waves) else (self._waves or [None])[-1]
        with using_builder(self._tracer):
            traffic = self._launches.trace(launch, self._watch.known(), wave)
        line = launch.function.__code__.co_firstlineno
        self.records.append(
            {"kernel": launch.kernel, "line": line, "grid": list(launch.grid), "traffic": traffic.model_dump()}
        )
        autotune.CHOICE.launches = len(self.records)


def trace_job(payload: Payload) -> Payload:
    """Trace the launches a kernel makes for one set of inputs, running only sampled programs of each.

    ``inputs``: specs, ["tensor", shape, strides, dtype name] (real numbers: nothing is filled in), ["data", array]
    (integers as they are) or ["value", v]. ``waves``: programs resident at once, per launch (the last one holds for
    further launches; [] to leave waves out). Answer: {"launches": [{"kernel", "line", "grid", "traffic" (fields of
    ``model.Traffic``)}], "host" (torch calls that compute or copy: name, bytes read, bytes written), "error", "kind",
    "wall_s"}.
    """
    _prepare(payload)
    started = time.perf_counter()
    watch = HostWatch(poison_allocations=False)
    runner = _TraceRunner(watch, [int(w) for w in payload.get("waves", [132])])
    autotune.CHOICE.launches = 0
    answer: Payload = {"error": None, "kind": None}
    inputs = [_from_spec(spec) for spec in payload["inputs"]]
    watch.take_inputs([v for v in inputs if isinstance(v, torch.Tensor)])
    previous = set_runner(runner)
    try:
        with PretendCuda("cpu"):
            entry = load(payload["source"], payload.get("entry", "run"))
            with watch:
                entry(*inputs)
    except (Exception, KernelFault, TraceTooLong) as error:
        answer = _failure(error)
    finally:
        set_runner(previous)
    moved = [list(call) for call in watch.moved]
    return {**answer, "launches": runner.records, "host": moved, "wall_s": time.perf_counter() - started}


def spot_job(payload: Payload) -> Payload:
    """Run a few programs of each launch on real inputs.

    ``inputs``: ["file", path, shape, strides, dtype name] (bytes of the tensor's storage) or ["value", v]; ``shares``:
    places in each grid, 0..1; ``configs`` by launch; ``seed`` of the programs looked at for repeated stores.
    Answer: see ``spot.spot_check``.
    """
    from .spot import spot_check

    _prepare({**payload, "configs": None})
    try:
        with PretendCuda("cpu"):
            entry = load(payload["source"], payload.get("entry", "run"))
    except (Exception, KernelFault) as error:
        return _failure(error)
    inputs = [_from_file(spec) for spec in payload["inputs"]]
    return spot_check(entry, inputs, payload["shares"], payload.get("configs") or (), int(payload.get("seed", 0)))


def _from_file(spec: Any) -> Any:
    if spec[0] == "value":
        return spec[1]
    _, path, shape, stride, name = spec
    dtype: torch.dtype = getattr(torch, name)
    size = Path(path).stat().st_size
    flat = torch.from_file(path, shared=False, size=size, dtype=torch.uint8) if size else torch.empty(0)
    return flat.view(dtype).as_strided(tuple(shape), tuple(stride))


def _from_spec(spec: Any) -> Any:
    kind = spec[0]
    if kind == "value":
        return spec[1]
    if kind == "data":
        data = spec[1]
        return _own_storage(data if isinstance(data, torch.Tensor) else torch.from_numpy(np.array(data)))
    return torch.empty_strided(tuple(spec[1]), tuple(spec[2]), dtype=getattr(torch, spec[3]))


class _time_limit:
    """Raises CaseTimeout in the main thread after so many seconds; None is no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        if self._seconds:
            signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: Any) -> None:
        if self._seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, *_: Any) -> None:
        raise CaseTimeout(f"the case took longer than {self._seconds:g} s")
