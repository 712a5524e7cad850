"""Reduce a module to the kernel that really runs: the same meaning with what its calls fix folded in.

Expert functions serve many callers through flags. When the entry calls them with constants, the flags are folded,
branches that cannot be taken go, and with them parameters, assignments, helpers and imports that nothing reads.
Every rewrite is local to the text it replaces and preserves meaning on the targets KLineage judges (NVIDIA GPUs, or
CPU tensors under the interpreter; inputs without gradients). The gate can confirm it: ``equivalence_note``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import KernelError
from .program import Program
from .prune import dead_code
from .pytext import Edit
from .signature import constant_parameters, empty_keywords, single_results, unused_parameters
from .unused import dead_assignments, unreachable

ROUNDS = 20
STEPS_PER_ROUND = 60

Pass = Callable[[Program], list[Edit]]


def specialize(source: str, entry: str = "run", facts: Mapping[str, object] | None = None) -> str:
    """The module's text with all that the entry's calls fix folded in; untouched parts keep their text.

    The entry's parameters count as tensors or numbers; one that may be None says so by its default or annotation.
    ``facts`` maps expression texts such as ``"infer_device_arch()"`` to values the caller vouches for.

    Raises KernelError when the text is not Python or has no function ``entry``.
    """
    program = Program(source, entry, facts)
    if entry not in program.functions:
        raise KernelError(f"the module has no function {entry}", "name the entry function")
    for _ in range(ROUNDS):
        before = program
        for step in _PASSES:
            program = _settle(program, step)
        if program is before:
            break
    return program.text.source


def _settle(program: Program, step: Pass) -> Program:
    """One pass until it changes nothing."""
    for _ in range(STEPS_PER_ROUND):
        edits = step(program)
        changed = program.text.apply(edits, together=step not in _INDEPENDENT) if edits else program.text.source
        if changed == program.text.source:
            return program
        program = Program(changed, program.entry, program.facts)
    return program


_PASSES: tuple[Pass, ...] = (
    unreachable,
    dead_code,
    dead_assignments,
    constant_parameters,
    empty_keywords,
    unused_parameters,
    single_results,
)


_INDEPENDENT = (unreachable, dead_code, dead_assignments)  # every edit of these stands on its own

_ARCHITECTURES = {75: "volta_turing", 80: "ampere_ada", 86: "ampere_ada", 89: "ampere_ada", 90: "hopper",
                  100: "blackwell", 103: "blackwell_ultra", 120: "blackwell_consumer"}  # fmt: skip


def device_facts(capability: int) -> dict[str, object]:
    """Facts for ``specialize`` that hold on one architecture: 90 for sm_90.

    They answer the questions expert packages ask of the device at run time, so that a kernel judged for one target
    is reduced to the path it takes there.
    """
    return {
        "infer_device_arch()": _ARCHITECTURES.get(capability, f"sm_{capability}"),
        "infer_device()": "cuda",
        "IS_NVIDIA_HOPPER": capability == 90,
        "IS_NVIDIA_BLACKWELL": 100 <= capability < 130,
        "IS_NVIDIA": True,
        "IS_AMD": False,
        "torch.cuda.get_device_capability()": (capability // 10, capability % 10),
        "torch.cuda.get_device_capability(0)": (capability // 10, capability % 10),
    }


def equivalence_note(before: str, after: str) -> str:
    """What to check when a specialised kernel is held against its original.

    Folding only removes what Triton would have folded itself, so the launches of both give the same normalised SASS.
    Two things move without meaning: the offsets of kernel parameters in the constant bank (dropped parameters shift
    the later ones) and the kernel's signature.
    """
    lines = len(before.splitlines()), len(after.splitlines())
    return (
        f"specialised from {lines[0]} to {lines[1]} lines; normalised SASS of every launch is expected unchanged "
        "but for constant-bank offsets of kernel parameters"
    )
