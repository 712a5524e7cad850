"""What the interpreter cannot show, for a given kernel. A verdict reached with it carries these sentences.

Each sentence has a test on the kernel's text and on what its launches were compiled to, so that a verdict names only
what could matter. ``docs/interpreter_limits.md`` explains them one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...model import LaunchReport

Test = Callable[[str, Sequence[LaunchReport]], bool]


@dataclass(frozen=True)
class BlindSpot:
    """One thing that is not seen, and whether it can matter to a kernel."""

    name: str
    sentence: str
    matters: Test


def _text(pattern: str) -> Test:
    found = re.compile(pattern)
    return lambda source, _: found.search(source) is not None


def _sass(*names: str) -> Test:
    def test(_: str, launches: Sequence[LaunchReport]) -> bool:
        return any(op.startswith(names) for launch in launches for op in launch.sass)

    return test


def _several_programs(_: str, launches: Sequence[LaunchReport]) -> bool:
    return not launches or any(launch.blocks > 1 for launch in launches)


def _always(_: str, __: Sequence[LaunchReport]) -> bool:
    return True


def _nothing_compiled(_: str, launches: Sequence[LaunchReport]) -> bool:
    return not launches


def _any(*tests: Test) -> Test:
    return lambda source, launches: any(test(source, launches) for test in tests)


def _all(*tests: Test) -> Test:
    return lambda source, launches: all(test(source, launches) for test in tests)


_SUMS = _text(r"\btl\.(sum|dot|cumsum|associative_scan|reduce|atomic_add)\b|\+=")
_ATOMICS = _text(r"\btl\.atomic_")

SPOTS: tuple[BlindSpot, ...] = (
    BlindSpot(
        "races",
        "Programs run one after another: a race is found only where two programs touch the same element in the cases "
        "run.",
        _several_programs,
    ),
    BlindSpot(
        "in_place",
        "A kernel that stores to a pointer it also loads from may be called in place: an overlap is found only when a "
        "program overwrites an element that another has read or written.",
        lambda source, launches: _several_programs(source, launches) and bool(_loaded_and_stored(source)),
    ),
    BlindSpot(
        "locks",
        "After its first atomic a program counts as synchronised: a wrong use of locks or flags, or a wait for a "
        "program that never runs, is not found.",
        _all(_ATOMICS, _several_programs),
    ),
    BlindSpot(
        "atomic_order",
        "Floating atomics add in one order here and in any order on a GPU: results there vary from run to run.",
        _text(r"\btl\.atomic_add\b"),
    ),
    BlindSpot(
        "barriers",
        "Warps and barriers inside a program do not exist: a missing or misplaced debug_barrier, and a program that "
        "reads back what its own other threads stored, are not found.",
        lambda source, _: "debug_barrier" in source or bool(_loaded_and_stored(source)),
    ),
    BlindSpot(
        "tf32",
        "TF32 dots drop the low mantissa bits of their operands; the tensor cores' internal rounding is not modelled.",
        _all(_text(r"\btl\.dot\b"), _any(_sass("HMMA.1688.F32.TF32", "HGMMA"), _text(r"tf32|allow_tf32|float32"))),
    ),
    BlindSpot(
        "half_accumulation",
        "Accumulation in half precision is rounded once per 16 terms of a dot and once per level of a sum's tree; "
        "hardware rounds in another order.",
        _text(r"out_dtype\s*=\s*tl\.b?float16|\b(zeros|full)\(.*tl\.b?float16"),
    ),
    BlindSpot(
        "fp8",
        "FP8 dots accumulate exactly here; Hopper's tensor cores keep about 14 bits between their steps.",
        _text(r"float8|fp8|dot_scaled|e4m3|e5m2"),
    ),
    BlindSpot(
        "sum_order",
        "The order of fp32 sums differs from the hardware's: results agree to rounding, not to the bit.",
        _SUMS,
    ),
    BlindSpot(
        "approximations",
        "Approximate instructions (ex2.approx, rcp.approx, rsqrt.approx, tanh.approx, division by tl.fdiv) are "
        "computed exactly.",
        _any(_sass("MUFU"), _text(r"\b(exp|exp2|log|log2|rsqrt|sqrt|sin|cos|tanh|sigmoid|fdiv|softmax)\(")),
    ),
    BlindSpot(
        "libdevice",
        "Functions of libdevice are computed by numpy: their last bits, and their answers to arguments out of range, "
        "differ from the GPU's.",
        _text(r"\blibdevice\b"),
    ),
    BlindSpot(
        "fused_multiply_add",
        "The compiler contracts a multiplication and an addition to one rounding; here each rounds.",
        _sass("FFMA", "HFMA2", "DFMA"),
    ),
    BlindSpot(
        "inline_assembly",
        "Inline PTX is run by a small emulator of the instructions experts use; memory, predicates across lanes and "
        "special registers are outside it.",
        _text(r"inline_asm"),
    ),
    BlindSpot(
        "integer_overflow",
        "Integer arithmetic wraps as numpy's does; what the compiler concludes from overflow being undefined, and "
        "assumptions stated by tl.assume or tl.multiple_of that do not hold, are not checked on hardware's terms.",
        _text(r"\btl\.(assume|multiple_of|max_contiguous)\b"),
    ),
    BlindSpot(
        "specialisation",
        "Scalar arguments equal to 1 or divisible by 16 are not specialised here as the compiler specialises them.",
        _any(_nothing_compiled, lambda _, launches: any("/16" in a for x in launches for a in x.arg_types)),
    ),
    BlindSpot(
        "configurations",
        "Of an autotuned kernel each configuration is checked on one case, and the one chosen on all: a GPU may choose "
        "another.",
        _text(r"\bautotune\b"),
    ),
    BlindSpot(
        "streams",
        "Launches run one after another: work left on another stream, or a missing synchronisation, is not found.",
        _text(r"\b(Stream|stream|wait_stream|Event|graph)\b"),
    ),
    BlindSpot(
        "host_process",
        "Launcher and interpreter share a process: the watch on torch calls and patches is a tripwire there, the "
        "comparison of values is not.",
        _always,
    ),
)

BLIND_SPOTS: tuple[str, ...] = tuple(spot.sentence for spot in SPOTS)


def blind_spots(source: str, launches: Sequence[LaunchReport]) -> tuple[str, ...]:
    """The sentences that could matter to this kernel; ``launches`` may be empty when nothing was compiled."""
    return tuple(spot.sentence for spot in SPOTS if spot.matters(source, launches))


def _loaded_and_stored(source: str) -> set[str]:
    """Pointer names that a kernel's text both loads from and stores to."""
    loads = set(re.findall(r"\btl\.load\(\s*(\w+)", source))
    return loads & set(re.findall(r"\btl\.store\(\s*(\w+)", source))
