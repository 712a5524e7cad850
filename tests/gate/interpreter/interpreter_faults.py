"""A table of kernels that Triton's interpreter gets wrong, with what hardware gives.

Run as a script it executes the table in the unpatched interpreter: ``interpreter_faults.py <result file>``.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

HEADER = """
import torch, triton
import triton.language as tl
from triton.language.extra import libdevice

"""


@dataclass(frozen=True)
class Fault:
    """``body`` defines ``run(*inputs)``; ``expected`` computes its answer from the inputs."""

    name: str
    body: str
    inputs: tuple[Tensor, ...]
    expected: Callable[..., Tensor]
    tolerance: float = 0.0

    @property
    def source(self) -> str:
        return HEADER + self.body


def elementwise(expression: str, out: str, count: int = 1, extra: str = "", launch: str = "") -> str:
    """A kernel that stores ``expression`` of x (and y) in a tensor of dtype ``out``."""
    args = ["x", "y"][:count]
    loads = "\n".join(f"    {a} = tl.load({a}p + i)" for a in args)
    pointers = ", ".join(f"{a}p" for a in args)
    return f"""
{extra}
@triton.jit
def kernel({pointers}, o, N: tl.constexpr):
    i = tl.arange(0, N)
{loads}
    tl.store(o + i, ({expression}).to(o.dtype.element_ty))

def run({", ".join(args)}):
    o = torch.empty(x.shape, dtype=torch.{out}, device=x.device)
    kernel[(1,)]({", ".join(args)}, o, N=x.numel())
    return o
"""


def reduction(call: str, out_size: int, out: str, extra: str = "") -> str:
    """A kernel that reduces or scans a 16 x 64 tile."""
    index = "tl.arange(0, 16)" if out_size == 16 else "tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :]"
    return f"""
{extra}
@triton.jit
def kernel(xp, o):
    x = tl.load(xp + tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :])
    tl.store(o + {index}, {call})

def run(x):
    o = torch.empty({"16" if out_size == 16 else "(16, 64)"}, dtype=torch.{out}, device=x.device)
    kernel[(1,)](x, o)
    return o
"""


def dot(out: str, options: str = "") -> str:
    """A 32 x 32 x 32 dot."""
    return f"""
@triton.jit
def kernel(ap, bp, o):
    r = tl.arange(0, 32)
    at = r[:, None] * 32 + r[None, :]
    tl.store(o + at, tl.dot(tl.load(ap + at), tl.load(bp + at){options}).to(o.dtype.element_ty))

def run(a, b):
    o = torch.empty((32, 32), dtype=torch.{out}, device=a.device)
    kernel[(1,)](a, b, o)
    return o
"""


ATOMIC = """
@triton.jit
def kernel(xp, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(o + i % 4, tl.load(xp + i))

def run(x):
    o = torch.zeros(4, dtype=x.dtype, device=x.device)
    kernel[(1,)](x, o, N=x.numel())
    return o
"""
AUTOTUNED = """
@triton.autotune([triton.Config({"B": 32}), triton.Config({"B": 64})], key=["n"])
@triton.jit
def kernel(xp, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(xp + i, mask=i < n) * 2, mask=i < n)

def run(x):
    o = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, o, x.numel())
    return o
"""
FLOAT_ARGUMENT = """
@triton.jit
def kernel(xp, o, eps, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(xp + i) + eps.to(tl.float32))

def run(x):
    o = torch.empty_like(x)
    kernel[(1,)](x, o, 0.5, N=x.numel())
    return o
"""
LOOP_COUNTER = """
@triton.jit
def kernel(xp, o, n, B: tl.constexpr):
    acc = tl.zeros([B], tl.float32)
    for i in range(0, n):
        acc += tl.load(xp + i.to(tl.int64) * B + tl.arange(0, B))
    tl.store(o + tl.arange(0, B), acc)

def run(x):
    o = torch.empty(16, device=x.device)
    kernel[(1,)](x, o, x.numel() // 16, B=16)
    return o
"""
SOFTPLUS_ASM = """
@triton.jit
def kernel(xp, o, N: tl.constexpr):
    i = tl.arange(0, N)
    r = tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.f32 p, $1, 20.; @p mov.f32 $0, $1; @!p mul.f32 $0, $1, 1.4426950408889634;"
        " @!p ex2.approx.ftz.f32 $0, $0; @!p add.f32 $0, $0, 1.0; @!p lg2.approx.ftz.f32 $0, $0;"
        " @!p mul.f32 $0, $0, 0.6931471805599453; }",
        "=r,r", [tl.load(xp + i)], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(o + i, r)

def run(x):
    o = torch.empty_like(x)
    kernel[(1,)](x, o, N=x.numel())
    return o
"""
BRANCHING_MAP = """
@triton.jit
def scalar(x):
    if x > 0:
        return x * 2
    else:
        return x - 1
"""
DRIVER = """
@triton.jit
def kernel(o, n):
    tl.store(o, n)

def run(x):
    device = triton.runtime.driver.active.get_current_device()
    o = torch.empty(1, dtype=torch.int32, device=x.device)
    n = triton.runtime.driver.active.utils.get_device_properties(device)["multiprocessor_count"]
    kernel[(1,)](o, n)
    return o
"""
DEF_IN_TEXT = """
@triton.jit
def kernel(xp, o, N: tl.constexpr):
    '''Doubles.

    def is a word that may begin a line.
    '''
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(xp + i) * 2)

def run(x):
    o = torch.empty_like(x)
    kernel[(1,)](x, o, N=x.numel())
    return o
"""
OTHER_NAME = """
import triton.language as lang

@triton.jit
def kernel(xp, o, N: lang.constexpr):
    i = lang.arange(0, N)
    lang.store(o + i, lang.load(xp + i) * 2)

def run(x):
    o = torch.empty_like(x)
    kernel[(1,)](x, o, N=x.numel())
    return o
"""
MULTIPLY = "@triton.jit\ndef multiply(a, b):\n    return a * b\n"


def _table() -> list[Fault]:
    generator = torch.Generator().manual_seed(7)
    real = torch.randn(64, generator=generator)
    other = torch.randn(64, generator=generator)
    grid = torch.randn(16, 64, generator=generator)
    left, right = (torch.randn(32, 32, generator=generator) for _ in range(2))
    bf, e4, e5 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
    near = torch.tensor([1.9999, 3.9999, -1.9999, 0.33333] * 16)
    steep = torch.ones(16, 64, dtype=torch.float16)
    steep[:, 0] = 2048  # where fp16 counts in twos
    table = [
        Fault("bf16-add", elementwise("x + y", "bfloat16", 2), (real.to(bf), other.to(bf)), lambda x, y: x + y),
        Fault("bf16-multiply", elementwise("x * y", "bfloat16", 2), (real.to(bf), other.to(bf)), lambda x, y: x * y),
        Fault("bf16-compare", elementwise("tl.where(x > y, x, y)", "bfloat16", 2), (real.to(bf), other.to(bf)),
              torch.maximum),
        Fault("bf16-negate", elementwise("-x", "bfloat16"), (real.to(bf),), torch.neg),
        Fault("fp8-multiply", elementwise("x * y", "float8_e5m2", 2), (real.to(e5), other.to(e5)),
              lambda x, y: (x.float() * y.float()).to(e5)),
        Fault("bf16-sum", reduction("tl.sum(x.to(tl.bfloat16), 1)", 16, "bfloat16"), (grid.to(bf),),
              lambda x: x.float().sum(1), 0.2),
        Fault("bf16-max", reduction("tl.reduce(x, 1, bigger)", 16, "bfloat16",
                                    "@triton.jit\ndef bigger(a, b):\n    return tl.maximum(a, b)\n"), (grid.to(bf),),
              lambda x: x.amax(1)),
        Fault("bf16-custom-scan", reduction("tl.associative_scan(x, 1, multiply)", 64, "bfloat16", MULTIPLY),
              (grid.to(bf),), lambda x: x.float().cumprod(1), 0.1),
        Fault("bf16-dot", dot("float32"), (left.to(bf), right.to(bf)), lambda a, b: a.float() @ b.float(), 1e-4),
        Fault("tf32-dot", dot("float32"), (left, right),
              lambda a, b: tf32(a) @ tf32(b), 1e-4),
        Fault("bf16-atomic-add", ATOMIC, (real.to(bf),), lambda x: x.float().view(-1, 4).sum(0), 0.2),
        Fault("cast-to-bf16-rounds", elementwise("x", "bfloat16"), (near,), lambda x: x.to(bf)),
        Fault("cast-to-e4m3-rounds", elementwise("x", "float8_e4m3fn"), (real,), lambda x: x.to(e4)),
        Fault("cast-to-e5m2-rounds", elementwise("x", "float8_e5m2"), (real,), lambda x: x.to(e5)),
        Fault("cast-to-e4m3-saturates", elementwise("x", "float8_e4m3fn"), (real.sign() * 1e4,),
              lambda x: (x.sign() * 448).to(e4)),
        Fault("cast-from-int-to-bf16", elementwise("x", "bfloat16"), (torch.arange(64, dtype=torch.int32) * 9,),
              lambda x: x.to(bf)),
        Fault("libdevice-tanh", elementwise("libdevice.tanh(x)", "float32"), (real,), torch.tanh, 1e-6),
        Fault("libdevice-of-bf16", elementwise("libdevice.exp(x)", "bfloat16"), (real.to(bf),),
              lambda x: x.float().exp().to(bf)),
        Fault("libdevice-pow", elementwise("libdevice.pow(x, y)", "float32", 2), (real.abs(), other), torch.pow, 1e-5),
        Fault("libdevice-isnan", elementwise("libdevice.isnan(x)", "int32"), (torch.where(real > 0, real, torch.nan),),
              lambda x: x.isnan().int()),
        Fault("autotune-two-configurations", AUTOTUNED, (real,), lambda x: x * 2),
        Fault("float-argument", FLOAT_ARGUMENT, (real,), lambda x: x + 0.5),
        Fault("loop-counter", LOOP_COUNTER, (real,), lambda x: x.view(-1, 16).sum(0), 1e-5),
        Fault("inline-asm-ex2", elementwise(
            'tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)',
            "float32"), (real,), torch.exp2, 1e-6),
        Fault("inline-asm-predicated", SOFTPLUS_ASM, (real * 20,), torch.nn.functional.softplus, 1e-5),
        Fault("map-elementwise", elementwise("tl.map_elementwise(scalar, x)", "float32", 1, BRANCHING_MAP), (real,),
              lambda x: torch.where(x > 0, x * 2, x - 1)),
        Fault("driver-properties", DRIVER, (real,), lambda _: torch.tensor([132], dtype=torch.int32)),
        Fault("def-in-docstring", DEF_IN_TEXT, (real,), lambda x: x * 2),
        Fault("constexpr-by-another-name", OTHER_NAME, (real,), lambda x: x * 2),
        Fault("fp16-sum-is-a-rounded-tree", reduction("tl.sum(x, 1)", 16, "float16"), (steep,), rounded_tree),
    ]  # fmt: skip
    return table


def rounded_tree(x: Tensor) -> Tensor:
    """Sums of rows, neighbours first, each sum rounded to the type of ``x``."""
    while x.shape[1] > 1:
        x = x[:, 0::2] + x[:, 1::2]
    return x[:, 0]


def tf32(x: Tensor) -> Tensor:
    """fp32 with the low 13 mantissa bits dropped."""
    return (x.view(torch.int32) & -8192).view(torch.float32)


FAULTS = _table()


def right(fault: Fault, answer: Tensor) -> bool:
    """Whether an answer is what hardware gives."""
    expected = fault.expected(*fault.inputs)
    if answer.shape != expected.shape or answer.isnan().any():
        return False
    return bool(torch.allclose(answer.double(), expected.double(), rtol=0, atol=fault.tolerance))


def main(result_file: str) -> None:
    """Write for each fault whether the unpatched interpreter got it right."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, fault in enumerate(FAULTS):
            path = Path(folder, f"fault_{number}.py")
            path.write_text(fault.source)
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
                good = right(fault, module.run(*[x.clone() for x in fault.inputs]))
            except Exception:  # whatever the interpreter makes of it: not the right answer
                good = False
            lines.append(f"{fault.name} {'right' if good else 'wrong'}")
    Path(result_file).write_text("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])
