# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Compile every launch that a kernel module makes on given cases, in a worker, and report what each is made of."""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import ValidationError

from ..errors import KernelError
from ..model import Kernel, LaunchReport, Target, content_hash
from .binary import NOT_READ, Cubin, Inspector, Sass, parse_cubin
from .occupancy import occupancy
from .wire import Payload
from .workers import JobResult, Limits, Zygote

STATIC_SCORE = "klineage.gate.score:static_score"
_JOB = "klineage.gate.compile_job:compile_job"
_DATA_ELEMENTS = 1 << 22  # integer inputs up to this size travel with their values: they may steer host code

InputSpec = tuple[Any, ...]
"""("tensor", shape, stride, dtype[, offset in elements]), ("data", tensor or array), or ("value", scalar)."""

FailureKind = Literal["", "compile", "resources", "host", "no_launch", "worker"]


@dataclasses.dataclass(frozen=True)
class Arg:
    """One argument of a launch. ``value`` holds a scalar, or shape, stride and dtype of a tensor, as JSON values;
    ``input`` is the index of the entry's input whose storage the tensor shares."""

    name: str
    type: str  # Triton's type: "*fp16", "i32", "tensordesc<fp16[128,64]>"
    divisible_by: int
    value: Any
    input: int | None = None

    @property
    def label(self) -> str:
        """``name:type``, with ``/16`` when the value is known to be divisible by 16."""
        return f"{self.name}:{self.type}" + (f"/{self.divisible_by}" if self.divisible_by > 1 else "")


@dataclasses.dataclass(frozen=True)
class CompileOutcome:
    """What became of compiling a kernel. ``reason`` is one line, empty exactly when ``ok``.

    ``launches`` and ``arguments`` go together, by case name: the final launches in order (autotuner trials are only
    counted). A case may have none: a module that launches no kernel is for the gate to refuse. ``programs`` (see
    measured.record) and the binaries they launch are there when they were asked for.
    """

    ok: bool
    reason: str = ""
    kind: FailureKind = ""
    case: str = ""
    launches: dict[str, list[LaunchReport]] = dataclasses.field(default_factory=dict)
    arguments: dict[str, list[tuple[Arg, ...]]] = dataclasses.field(default_factory=dict)
    programs: dict[str, Any] = dataclasses.field(default_factory=dict)
    cubins: dict[str, bytes] = dataclasses.field(default_factory=dict)
    trials: int = 0
    wall_s: float = 0.0
    output_tail: str = ""

    @property
    def signature(self) -> str:
        """Hash of all that decides the time of the launches: code, registers, memory, grid and block. Two kernels
        with the same signature run the same."""
        parts: list[str] = []
        for name, launches in sorted(self.launches.items()):
            parts.append(name)
            for x in launches:
                parts.append(f"{x.sass_hash} {x.grid} {x.num_warps} {x.num_ctas} {x.smem_bytes} {x.registers}")
        return content_hash(*parts)


def specs_of(inputs: Sequence[Any]) -> list[InputSpec]:
    """The specs of an entry's inputs: tensors by layout, small integer tensors with their values."""
    return [_spec_of(value) for value in inputs]


def _spec_of(value: Any) -> InputSpec:
    if not isinstance(value, torch.Tensor):
        return ("value", value)
    if not value.dtype.is_floating_point and not value.dtype.is_complex and value.numel() <= _DATA_ELEMENTS:
        return ("data", value)
    dtype = str(value.dtype).removeprefix("torch.")
    return ("tensor", list(value.shape), list(value.stride()), dtype, value.storage_offset())


def make_input(spec: InputSpec, device: str) -> Any:
    """An input from its spec: tensors on ``device`` (meta, or cpu where they read as zeros and cost no memory until
    written). Raises ValueError for a spec of another kind."""
    if spec[0] == "value":
        return spec[1]
    if spec[0] == "data":
        return spec[1] if isinstance(spec[1], torch.Tensor) else torch.from_numpy(spec[1])
    if spec[0] != "tensor":
        raise ValueError(f"unknown input spec {spec[0]!r}")
    _, shape, stride, name, *rest = spec
    dtype: torch.dtype = getattr(torch, name)
    offset = rest[0] if rest else 0
    empty = 0 in shape
    span = offset + (0 if empty else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)))
    if device == "meta":
        return torch.empty(span, dtype=dtype, device="meta").as_strided(shape, stride, offset)
    if not span:
        return torch.empty_strided(shape, stride, dtype=dtype)
    zeros = torch.frombuffer(mmap.mmap(-1, span * dtype.itemsize), dtype=torch.uint8)
    return zeros.view(dtype).as_strided(shape, stride, offset)


def compile_kernel(
    zygote: Zygote,
    kernel: Kernel,
    cases: Sequence[tuple[str, Sequence[InputSpec]]],
    target: Target,
    *,
    max_configs: int = 4,
    score: str = STATIC_SCORE,
    limits: Limits | None = None,
    jobs: int = 1,
    record: bool = False,
    disassemble: Collection[str] | None = None,
) -> CompileOutcome:
    """Run the kernel's entry on every case without executing a kernel, compiling each launch for ``target``.

    ``score`` ("module:callable", resolved in the worker) ranks autotuner configurations; the cases are dealt to
    ``jobs`` children side by side; ``record`` also writes each call down for replay. Code is disassembled for the cases
    named in ``disassemble`` (all when None); elsewhere reports lack it. Raises KernelError for a language that cannot
    be compiled here, HarnessError when the worker or nvdisasm does not work.
    """
    if kernel.language != "triton":
        raise KernelError(f"cannot compile a {kernel.language} kernel", "give a Triton module")
    payload: Payload = {
        "source": kernel.source,
        "entry": kernel.entry,
        "name": f"kernel_{kernel.id}",
        "target": target.model_dump(),
        "max_configs": max_configs,
        "score": score,
        "record": record,
    }
    hands = _deal(cases, jobs)

    def compile_hand(hand: Sequence[tuple[str, Sequence[InputSpec]]]) -> CompileOutcome:
        asked = [{"name": name, "inputs": list(specs)} for name, specs in hand]
        wanted = [name for name, _ in hand if disassemble is None or name in disassemble]
        return _compile_some(zygote, {**payload, "cases": asked}, target, limits, wanted)

    with ThreadPoolExecutor(len(hands)) as pool:
        outcomes = list(pool.map(compile_hand, hands))
    return _joined(outcomes, [name for name, _ in cases])


def _deal(cases: Sequence[tuple[str, Sequence[InputSpec]]], jobs: int) -> list[list[tuple[str, Sequence[InputSpec]]]]:
    """Cases in at most ``jobs`` lots of like size; those that Triton specialises alike stay together."""
    alike: dict[str, list[tuple[str, Sequence[InputSpec]]]] = {}
    for case in cases:
        alike.setdefault(repr([_specialisation(spec) for spec in case[1]]), []).append(case)
    hands: list[list[tuple[str, Sequence[InputSpec]]]] = [[] for _ in range(max(1, min(jobs, len(alike))))]
    weights = [0.0] * len(hands)
    # wide accesses and pipelines are compiled for aligned shapes, which takes twice as long: these first
    for key, group in sorted(alike.items(), key=lambda item: "other" in item[0]):
        lightest = weights.index(min(weights))
        hands[lightest] += group
        weights[lightest] += 1.0 if "other" in key else 2.0
    return hands


def _specialisation(spec: InputSpec) -> Any:
    """What Triton can specialise on: sizes and strides that are one or divisible by 16, and types."""
    if spec[0] == "value":
        return spec[1] if not isinstance(spec[1], int) else _size_class(spec[1])
    if spec[0] == "tensor":
        _, shape, stride, dtype, *_ = spec
    else:
        shape, stride, dtype = list(spec[1].shape), [], str(spec[1].dtype)
    return dtype, [_size_class(n) for n in shape], [_size_class(n) for n in stride]


def _size_class(n: int) -> str:
    return "one" if n == 1 else "other" if n % 16 else "aligned"


def _compile_some(
    zygote: Zygote, payload: Payload, target: Target, limits: Limits | None, wanted: Collection[str]
) -> CompileOutcome:
    job = zygote.run(_JOB, payload, limits)
    if job.value is None:
        return _failed(job, "worker", f"compiling ended early: {job.error}")
    try:
        return _outcome(job, job.value, target, _inspector(zygote.cache_dir), wanted)
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as error:
        # the answer comes from a process that ran the candidate's text
        return _failed(job, "worker", f"malformed answer: {type(error).__name__}")


def _joined(outcomes: Sequence[CompileOutcome], order: Sequence[str]) -> CompileOutcome:
    """One outcome of several that share the cases: the failure of the earliest case, or everything compiled."""
    failed = [x for x in outcomes if not x.ok]
    if failed:
        return min(failed, key=lambda x: order.index(x.case) if x.case in order else -1)
    return CompileOutcome(
        True,
        launches={name: x.launches[name] for name in order for x in outcomes if name in x.launches},
        arguments={name: x.arguments[name] for name in order for x in outcomes if name in x.arguments},
        programs={name: program for x in outcomes for name, program in x.programs.items()},
        cubins={key: cubin for x in outcomes for key, cubin in x.cubins.items()},
        trials=sum(x.trials for x in outcomes),
        wall_s=max(x.wall_s for x in outcomes),
        output_tail="".join(x.output_tail for x in outcomes),
    )


@cache
def _inspector(directory: Path) -> Inspector:
    return Inspector(directory)


def _failed(job: JobResult, kind: FailureKind, reason: str, case: str = "") -> CompileOutcome:
    if kind == "worker" and job.outcome in ("killed", "exited"):
        reason = f"{reason}: {_last_line(job.stdout_tail)}" if job.stdout_tail.strip() else reason
    if "PassManager::run failed" in reason:
        errors = [line for line in job.stdout_tail.splitlines() if "error:" in line]
        reason = f"{errors[0].split('error:', 1)[1].strip()} ({reason})" if errors else reason
    reason = " ".join(reason.split())[:500]
    return CompileOutcome(False, reason, kind, case, wall_s=job.wall_s, output_tail=job.stdout_tail)


def _last_line(text: str) -> str:
    return [line.strip() for line in text.splitlines() if line.strip()][-1][:200]


def _outcome(
    job: JobResult, answer: Payload, target: Target, inspector: Inspector, wanted: Collection[str]
) -> CompileOutcome:
    failure = answer["failure"]
    if failure is not None:
        kind = failure["kind"]
        if kind not in ("compile", "resources", "host"):
            raise ValueError(kind)
        return _failed(job, kind, str(failure["reason"]), str(failure["case"]))
    cubins = {str(key): parse_cubin(data) for key, data in answer["cubins"].items()}
    needed = {x["cubin"] for case in answer["cases"] if str(case["name"]) in wanted for x in case["launches"]}
    read = {key: cubin for key, cubin in cubins.items() if key in needed}
    sass = dict(zip(read, inspector.inspect([c.code for c in read.values()], target.arch), strict=True))
    inspected = {key: (cubin, sass.get(key, NOT_READ)) for key, cubin in cubins.items()}
    launches: dict[str, list[LaunchReport]] = {}
    arguments: dict[str, list[tuple[Arg, ...]]] = {}
    for case in answer["cases"]:
        name = str(case["name"])
        launches[name] = [_report(x, *inspected[x["cubin"]], target) for x in case["launches"]]
        arguments[name] = [tuple(Arg(**a) for a in x["args"]) for x in case["launches"]]
    return CompileOutcome(
        True,
        launches=launches,
        arguments=arguments,
        programs={str(c["name"]): c["program"] for c in answer["cases"] if c.get("program")},
        cubins=dict(answer["cubins"]) if any(c.get("program") for c in answer["cases"]) else {},
        trials=int(answer["trials"]),
        wall_s=job.wall_s,
        output_tail=job.stdout_tail,
    )


def _report(launch: dict[str, Any], cubin: Cubin, sass: Sass, target: Target) -> LaunchReport:
    threads = int(launch["num_warps"]) * target.warp_size
    spilled = launch["spill_bytes"]
    labels = [Arg(**a).label for a in launch["args"] if a["type"] != "constexpr"]
    return LaunchReport(
        kernel=launch["kernel"],
        grid=cast(tuple[int, int, int], tuple(launch["grid"])),
        num_warps=launch["num_warps"],
        num_stages=launch["num_stages"],
        num_ctas=launch["num_ctas"],
        constexprs=launch["constexprs"],
        arg_types=tuple(labels),
        config=launch["config"],
        smem_bytes=launch["smem_bytes"],
        registers=cubin.registers,
        spill_bytes=cubin.stack_bytes if spilled is None else spilled,
        stack_bytes=cubin.stack_bytes,
        occupancy=occupancy(target, cubin.registers, launch["smem_bytes"], threads),
        sass=sass.mix,
        sass_hash=sass.hash,
        loop_sass=sass.loop,
        compile_s=launch["compile_s"],
        line=launch["line"],
    )
