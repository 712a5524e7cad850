"""The kernel variants the performance model is fitted on: which launcher, which inputs, which parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

KERNELS = Path(__file__).with_name("calibration_kernels.py")
Spec = tuple[str, tuple[int, ...]]  # (dtype, shape); "label:V" is int64 below V


@dataclass(frozen=True)
class Variant:
    """One launcher call. ``family`` groups the variants that compute the same thing."""

    name: str
    family: str
    launcher: str
    inputs: tuple[Spec, ...]
    params: dict[str, Any]

    @property
    def module_text(self) -> str:
        """A self-contained kernel module whose ``run`` makes this call."""
        arguments = "".join(f", {key}={value!r}" for key, value in self.params.items())
        return f"{KERNELS.read_text()}\n\ndef run(*inputs):\n    return {self.launcher}(*inputs{arguments})\n"


def _operands(M: int, N: int, K: int, dtype: str = "fp16") -> tuple[Spec, ...]:
    return ((dtype, (M, K)), (dtype, (K, N)))


class _Matmuls(list[Variant]):
    def add(
        self, label: str, inputs: tuple[Spec, ...], launcher: str = "matmul", family: str = "matmul-4096", **params: Any
    ) -> None:
        self.append(Variant(f"{family}/{label}", family, launcher, inputs, params))


def _matmul_cube() -> list[Variant]:
    found = _Matmuls()
    add = found.add
    cube = _operands(4096, 4096, 4096)
    for stages in (1, 2, 3, 4):
        add(f"128x256x64-s{stages}-w8", cube, BM=128, BN=256, BK=64, STAGES=stages, num_warps=8)
        add(f"128x128x64-s{stages}-w4", cube, BM=128, BN=128, BK=64, STAGES=stages, num_warps=4)
    for stages in (1, 3):
        add(f"128x128x64-s{stages}-w8", cube, BM=128, BN=128, BK=64, STAGES=stages, num_warps=8)
        add(f"64x64x32-s{stages}-w4", cube, BM=64, BN=64, BK=32, STAGES=stages)
        add(f"64x64x64-s{stages}-w4", cube, BM=64, BN=64, BK=64, STAGES=stages)
        add(f"32x32x32-s{stages}-w4", cube, BM=32, BN=32, BK=32, STAGES=stages)
        add(f"64x128x64-s{stages}-w4", cube, BM=64, BN=128, BK=64, STAGES=stages)
    add("128x64x32-s4-w4", cube, BM=128, BN=64, BK=32, STAGES=4)
    add("64x256x64-s3-w4", cube, BM=64, BN=256, BK=64, STAGES=3)
    add("256x128x64-s3-w8", cube, BM=256, BN=128, BK=64, STAGES=3, num_warps=8)
    add("128x256x64-s3-w4", cube, BM=128, BN=256, BK=64, STAGES=3, num_warps=4)
    add("128x256x32-s3-w8", cube, BM=128, BN=256, BK=32, STAGES=3, num_warps=8)
    add("16x16x16-s1-w4", cube, BM=16, BN=16, BK=16, STAGES=1)
    add("32x32x32-s1-w4-g0", cube, BM=32, BN=32, BK=32, STAGES=1, GROUP=0)
    add("64x64x32-s1-w4-g0-masked", cube, BM=64, BN=64, BK=32, STAGES=1, GROUP=0, EVEN=False)
    add("128x256x64-s3-w8-g0", cube, BM=128, BN=256, BK=64, STAGES=3, num_warps=8, GROUP=0)
    add("128x256x64-s3-w8-masked", cube, BM=128, BN=256, BK=64, STAGES=3, num_warps=8, EVEN=False)
    add("128x128x64-s3-w4-masked", cube, BM=128, BN=128, BK=64, STAGES=3, EVEN=False)
    add("128x256x64-s3-w8-bt", cube, BM=128, BN=256, BK=64, STAGES=3, num_warps=8, transposed_b=True)
    bf16 = _operands(4096, 4096, 4096, "bf16")
    add("bf16-128x256x64-s3-w8", bf16, BM=128, BN=256, BK=64, STAGES=3, num_warps=8)
    ieee = {"PRECISION": "ieee", "UPCAST": True}
    add("ieee-32x32x32-s1-w4", cube, BM=32, BN=32, BK=32, STAGES=1, **ieee)
    add("ieee-32x32x32-s1-w4-g0-masked", cube, BM=32, BN=32, BK=32, STAGES=1, GROUP=0, EVEN=False, **ieee)
    add("ieee-64x64x32-s1-w4", cube, BM=64, BN=64, BK=32, STAGES=1, **ieee)
    add("ieee-64x64x16-s3-w4", cube, BM=64, BN=64, BK=16, STAGES=3, **ieee)
    add("ieee-128x64x32-s3-w8", cube, BM=128, BN=64, BK=32, STAGES=3, num_warps=8, **ieee)
    add("ieee-16x16x16-s1-w4", cube, BM=16, BN=16, BK=16, STAGES=1, **ieee)
    add("persistent-128x256x64-s3-w8", cube, "matmul_persistent", BM=128, BN=256, BK=64)
    add("persistent-128x128x64-s3-w8", cube, "matmul_persistent", BM=128, BN=128, BK=64, programs=264)
    add("descriptor-128x256x64-s3-w8", cube, "matmul_descriptor", BM=128, BN=256, BK=64)
    add("descriptor-128x128x64-s4-w4", cube, "matmul_descriptor", BM=128, BN=128, BK=64, STAGES=4, num_warps=4)
    add("descriptor-128x128x64-s1-w4", cube, "matmul_descriptor", BM=128, BN=128, BK=64, STAGES=1, num_warps=4)
    return found


def _matmul_shapes() -> list[Variant]:
    found = _Matmuls()
    add = found.add
    wide = {"family": "matmul-8192"}
    big = _operands(8192, 8192, 8192)
    add("128x256x64-s3-w8", big, BM=128, BN=256, BK=64, num_warps=8, **wide)
    add("128x256x64-s3-w8-g0", big, BM=128, BN=256, BK=64, num_warps=8, GROUP=0, **wide)
    add("64x64x32-s3-w4-g0", big, BM=64, BN=64, BK=32, GROUP=0, **wide)
    add("64x64x32-s3-w4-g8", big, BM=64, BN=64, BK=32, **wide)

    tf32 = {"family": "matmul-fp32"}
    single = _operands(4096, 4096, 4096, "fp32")
    add("tf32-128x128x32-s3-w8", single, BM=128, BN=128, BK=32, num_warps=8, **tf32)
    add("tf32-64x64x32-s1-w4", single, BM=64, BN=64, BK=32, STAGES=1, **tf32)
    add("tf32-128x128x32-s1-w4", single, BM=128, BN=128, BK=32, STAGES=1, **tf32)
    add("ieee-64x64x32-s1-w4", single, BM=64, BN=64, BK=32, STAGES=1, PRECISION="ieee", **tf32)
    add("ieee-128x128x16-s3-w8", single, BM=128, BN=128, BK=16, num_warps=8, PRECISION="ieee", **tf32)

    bias = (*_operands(8192, 4096, 1024), ("fp16", (4096,)))
    for epilogue in ("fused", "separate"):
        for label, params in (
            ("128x256x64-s3-w8", {"BM": 128, "BN": 256, "BK": 64, "num_warps": 8}),
            ("64x64x32-s1-w4", {"BM": 64, "BN": 64, "BK": 32, "STAGES": 1}),
        ):
            add(f"{epilogue}-{label}", bias, family="matmul-epilogue", epilogue=epilogue, **params)

    small = {"family": "matmul-1024"}
    little = _operands(1024, 1024, 1024)
    add("128x256x64-s3-w8", little, BM=128, BN=256, BK=64, num_warps=8, **small)
    add("128x128x64-s3-w4", little, BM=128, BN=128, BK=64, **small)
    add("64x64x64-s3-w4", little, BM=64, BN=64, BK=64, **small)
    add("64x64x64-s1-w4", little, BM=64, BN=64, BK=64, STAGES=1, **small)
    add("32x32x32-s1-w4", little, BM=32, BN=32, BK=32, STAGES=1, **small)

    skinny = {"family": "matmul-skinny"}
    flat = _operands(64, 4096, 16384)
    add("64x128x64-s4", flat, BM=64, BN=128, BK=64, STAGES=4, **skinny)
    add("64x64x64-s4", flat, BM=64, BN=64, BK=64, STAGES=4, **skinny)
    add("64x64x64-s1", flat, BM=64, BN=64, BK=64, STAGES=1, **skinny)
    for split in (2, 4, 8, 16):
        add(f"split{split}-64x128x64-s4", flat, "matmul_splitk", BM=64, BN=128, BK=64, SPLIT=split, STAGES=4, **skinny)
    add("split8-64x128x64-s1", flat, "matmul_splitk", BM=64, BN=128, BK=64, SPLIT=8, STAGES=1, **skinny)

    odd = {"family": "matmul-odd"}
    ragged = _operands(4095, 4095, 4095)
    add("128x128x64-s3-w8", ragged, BM=128, BN=128, BK=64, num_warps=8, EVEN=False, **odd)
    add("64x64x32-s1-w4", ragged, BM=64, BN=64, BK=32, STAGES=1, EVEN=False, **odd)
    return found


def _rmsnorm() -> list[Variant]:
    found: list[Variant] = []

    def add(label: str, M: int, N: int, dtype: str = "fp16", **params: Any):
        family = f"rmsnorm-{N}" if dtype == "fp16" else f"rmsnorm-{N}-{dtype}"
        inputs = ((dtype, (M, N)), (dtype, (N,)))
        found.append(Variant(f"{family}/{label}", family, "rmsnorm", inputs, params))

    for warps in (1, 2, 4, 8, 16, 32):
        add(f"one-w{warps}", 16384, 8192, num_warps=warps)
    for tile in (256, 512, 1024, 2048, 4096, 8192):
        add(f"two-{tile}-w4", 16384, 8192, mode="two", BLOCK=tile, num_warps=4)
    for tile in (1024, 4096):
        add(f"two-{tile}-w8", 16384, 8192, mode="two", BLOCK=tile, num_warps=8)
    add("two-1024-w1", 16384, 8192, mode="two", BLOCK=1024, num_warps=1)
    add("two-4096-w8-hints", 16384, 8192, mode="two", BLOCK=4096, HINTS=True)
    add("two-1024-w4-hints", 16384, 8192, mode="two", BLOCK=1024, HINTS=True, num_warps=4)
    for stages in (2, 4):
        add(f"two-1024-w4-s{stages}", 16384, 8192, mode="two", BLOCK=1024, STAGES=stages, num_warps=4)
        add(f"two-256-w4-s{stages}", 16384, 8192, mode="two", BLOCK=256, STAGES=stages, num_warps=4)
    add("one-w1", 262144, 512, num_warps=1)
    add("one-w4", 262144, 512, num_warps=4)
    for rows in (2, 4, 8, 16):
        add(f"rows{rows}-w4", 262144, 512, mode="rows", ROWS=rows, num_warps=4)
    add("two-256-w4", 262144, 512, mode="two", BLOCK=256, num_warps=4)
    for warps in (4, 16, 32):
        add(f"one-w{warps}", 2048, 65536, num_warps=warps)
    for tile in (1024, 4096, 8192):
        add(f"two-{tile}-w8", 2048, 65536, mode="two", BLOCK=tile)
    for warps in (4, 8, 32):
        add(f"one-w{warps}", 8192, 8192, dtype="fp32", num_warps=warps)
    add("two-1024-w4", 8192, 8192, dtype="fp32", mode="two", BLOCK=1024, num_warps=4)
    for tile in (1024, 4096):
        add(f"two-{tile}-w4", 16384, 8191, mode="two", BLOCK=tile, num_warps=4)
    add("one-w8", 16384, 8191)
    add("one-w8", 256, 2048, num_warps=8)
    add("two-256-w4", 256, 2048, mode="two", BLOCK=256, num_warps=4)
    return found


def _rows() -> list[Variant]:
    found: list[Variant] = []

    def add(family: str, label: str, launcher: str, inputs: tuple[Spec, ...], **params: Any):
        found.append(Variant(f"{family}/{label}", family, launcher, inputs, params))

    rows, width = 16384, 4096
    ln = (("fp16", (rows, width)), ("fp16", (width,)), ("fp16", (width,)))
    for warps in (1, 4, 8, 16):
        add("layernorm-4096", f"one-w{warps}", "layernorm", ln, num_warps=warps)
    for tile in (256, 1024, 4096):
        add("layernorm-4096", f"three-{tile}-w4", "layernorm", ln, mode="three", BLOCK=tile, num_warps=4)
    sm: tuple[Spec, ...] = (("fp16", (16384, 8192)),)
    for warps in (2, 4, 8, 16, 32):
        add("softmax-8192", f"one-w{warps}", "softmax", sm, num_warps=warps)
    add("softmax-8192", "one-w8-exp2", "softmax", sm, num_warps=8, EXP2=True)
    for tile in (256, 1024, 4096):
        add("softmax-8192", f"online-{tile}-w4", "softmax", sm, mode="online", BLOCK=tile, num_warps=4)
        add("softmax-8192", f"three-{tile}-w4", "softmax", sm, mode="three", BLOCK=tile, num_warps=4)
    add("softmax-8192", "online-1024-w4-exp2", "softmax", sm, mode="online", BLOCK=1024, num_warps=4, EXP2=True)
    wide: tuple[Spec, ...] = (("fp32", (4096, 16384)),)
    add("softmax-16384-fp32", "one-w16", "softmax", wide, num_warps=16)
    add("softmax-16384-fp32", "online-2048-w8", "softmax", wide, mode="online", BLOCK=2048)
    add("softmax-16384-fp32", "three-512-w4", "softmax", wide, mode="three", BLOCK=512, num_warps=4)
    for vocab, count in ((32768, 8192), (128256, 4096)):
        ce = (("fp16", (count, vocab)), (f"label:{vocab}", (count,)))
        family = f"cross_entropy-{vocab}"
        for tile, warps in ((256, 4), (1024, 4), (4096, 8), (8192, 8), (32768, 32)):
            add(family, f"online-{tile}-w{warps}", "cross_entropy", ce, BLOCK=tile, num_warps=warps)
        for tile, warps in ((256, 4), (4096, 8)):
            add(family, f"two-{tile}-w{warps}", "cross_entropy", ce, BLOCK=tile, ONLINE=False, num_warps=warps)
        add(family, "online-4096-w8-s3", "cross_entropy", ce, BLOCK=4096, STAGES=3)
    ce = (("fp16", (8192, 32768)), ("label:32768", (8192,)))
    for tile, warps in ((1024, 4), (4096, 8), (32768, 32)):
        add(
            "cross_entropy-grad", f"online-{tile}-w{warps}", "cross_entropy", ce, BLOCK=tile, GRAD=True, num_warps=warps
        )
    add("cross_entropy-grad", "two-1024-w4", "cross_entropy", ce, BLOCK=1024, ONLINE=False, GRAD=True, num_warps=4)
    return found


def _elementwise() -> list[Variant]:
    found: list[Variant] = []

    def add(family: str, label: str, launcher: str, inputs: tuple[Spec, ...], **params: Any):
        found.append(Variant(f"{family}/{label}", family, launcher, inputs, params))

    pair = (("fp16", (8192, 11008)),) * 2
    for tile, warps in ((128, 4), (256, 1), (256, 4), (1024, 4), (2048, 4), (4096, 4), (8192, 8), (8192, 4)):
        add("swiglu", f"flat-{tile}-w{warps}", "swiglu", pair, BLOCK=tile, num_warps=warps)
    for warps in (4, 8, 32):
        add("swiglu", f"row-w{warps}", "swiglu", pair, mode="row", num_warps=warps)
    for tile in (256, 1024):
        add("swiglu", f"tiled-{tile}-w4", "swiglu", pair, mode="tiled", BLOCK=tile)
    flat: tuple[Spec, ...] = (("fp16", (1 << 27,)),)
    for step in (1, 2, 4, 16):
        add(f"copy-step{step}", "1024-w4", "strided_copy", flat, STEP=step)
    add("copy-small", "1024-w4", "strided_copy", (("fp16", (1 << 12,)),))
    add("copy-medium", "1024-w4", "strided_copy", (("fp16", (1 << 22,)),))
    square: tuple[Spec, ...] = (("fp16", (8192, 8192)),)
    for tm, tn in ((32, 32), (64, 64), (1, 1024), (128, 32)):
        add("transpose", f"{tm}x{tn}", "transpose", square, TM=tm, TN=tn)
    for tm, tn in ((8, 32), (32, 32), (64, 64), (16, 128)):
        add("column_sum", f"{tm}x{tn}", "column_sum", square, TM=tm, TN=tn)
    single: tuple[Spec, ...] = (("fp32", (1 << 25,)),)
    add("special", "exp2-64", "special", single, ROUNDS=64)
    add("special", "fma-256", "special", single, ROUNDS=256, EXP2=False)
    heads = (("fp16", (64, 4096, 128)),) * 3
    for bm, bn, stages, warps in ((128, 128, 3, 8), (128, 64, 3, 8), (128, 64, 1, 8), (64, 64, 3, 4), (64, 32, 1, 4)):
        label = f"{bm}x{bn}-s{stages}-w{warps}"
        add("attention", label, "attention", heads, BM=bm, BN=bn, STAGES=stages, num_warps=warps)
    add("attention-causal", "128x64-s3-w8", "attention", heads, BM=128, BN=64, CAUSAL=True, num_warps=8)
    return found


def held_out() -> list[Variant]:
    """Variants at the bench shapes of the shipped tasks, never fitted on: they say how far the fit carries."""
    found: list[Variant] = []

    def add(family: str, label: str, launcher: str, inputs: tuple[Spec, ...], **params: Any) -> None:
        found.append(Variant(f"held-{family}/{label}", f"held-{family}", launcher, inputs, params))

    tile = {"BM": 128, "BN": 128, "BK": 64}
    oblong = _operands(2048, 4096, 1024, "bf16")
    for label, params in (
        ("128x128x64-s3-w8", {**tile, "num_warps": 8}),
        ("128x256x64-s4-w8", {**tile, "BN": 256, "STAGES": 4, "num_warps": 8}),
        ("128x128x64-s1-w4", {**tile, "STAGES": 1}),
        ("64x64x32-s3-w4", {"BM": 64, "BN": 64, "BK": 32}),
        ("32x64x32-s2-w4", {"BM": 32, "BN": 64, "BK": 32, "STAGES": 2, "EVEN": False}),
        ("32x32x32-s1-w4-g0-masked", {"BM": 32, "BN": 32, "BK": 32, "STAGES": 1, "GROUP": 0, "EVEN": False}),
        ("ieee-32x32x32-s1-w4", {"BM": 32, "BN": 32, "BK": 32, "STAGES": 1, "PRECISION": "ieee", "UPCAST": True}),
        ("ieee-64x32x16-s2-w4", {"BM": 64, "BN": 32, "BK": 16, "STAGES": 2, "PRECISION": "ieee", "UPCAST": True}),
    ):
        add("matmul", label, "matmul", oblong, **params)
    add("matmul", "descriptor-128x128x64-s3-w4", "matmul_descriptor", oblong, **tile, num_warps=4)
    add("matmul", "persistent-128x128x64-s3-w8", "matmul_persistent", oblong, **tile)
    add("matmul", "split2-128x128x64-s3-w8", "matmul_splitk", oblong, **tile, SPLIT=2, num_warps=8)
    bias = (*_operands(4096, 4096, 4096), ("fp16", (4096,)))
    for epilogue in ("fused", "separate"):
        add("epilogue", f"{epilogue}-128x128x64-s3-w8", "matmul", bias, **tile, num_warps=8, epilogue=epilogue)
        small = {"BM": 32, "BN": 32, "BK": 32, "STAGES": 1, "GROUP": 0, "EVEN": False, "epilogue": epilogue}
        add("epilogue", f"{epilogue}-32x32x32-s1-w4", "matmul", bias, **small)
    ln = (("fp16", (8192, 4096)), ("fp16", (4096,)), ("fp16", (4096,)))
    add("layernorm", "one-w2", "layernorm", ln, num_warps=2)
    add("layernorm", "one-w4", "layernorm", ln, num_warps=4)
    add("layernorm", "one-w32", "layernorm", ln, num_warps=32)
    for width in (256, 512, 2048):
        add("layernorm", f"three-{width}-w4", "layernorm", ln, mode="three", BLOCK=width, num_warps=4)
    rms = (("fp16", (8192, 4096)), ("fp16", (4096,)))
    for warps in (1, 4, 16):
        add("rmsnorm", f"one-w{warps}", "rmsnorm", rms, num_warps=warps)
    for width in (256, 2048):
        add("rmsnorm", f"two-{width}-w4", "rmsnorm", rms, mode="two", BLOCK=width, num_warps=4)
    add("rmsnorm", "rows4-w8", "rmsnorm", rms, mode="rows", ROWS=4)
    sm: tuple[Spec, ...] = (("fp32", (8192, 4096)),)
    for warps in (2, 8, 32):
        add("softmax", f"one-w{warps}", "softmax", sm, num_warps=warps)
    for mode in ("online", "three"):
        for width in (256, 2048):
            add("softmax", f"{mode}-{width}-w4", "softmax", sm, mode=mode, BLOCK=width, num_warps=4)
    ce = (("bf16", (4096, 32000)), ("label:32000", (4096,)))
    for width, warps, online in ((256, 4, True), (2048, 8, True), (32768, 16, True), (256, 4, False), (1024, 4, False)):
        params = {"BLOCK": width, "ONLINE": online, "GRAD": True, "num_warps": warps}
        add("cross_entropy", f"{'online' if online else 'two'}-{width}-w{warps}", "cross_entropy", ce, **params)
    pair = (("fp16", (8192, 14336)),) * 2
    for width, warps in ((256, 4), (512, 4), (1024, 8), (4096, 8)):
        add("swiglu", f"flat-{width}-w{warps}", "swiglu", pair, BLOCK=width, num_warps=warps)
    for mode, warps in (("row", 8), ("row", 32), ("tiled", 4)):
        add("swiglu", f"{mode}-w{warps}", "swiglu", pair, mode=mode, BLOCK=256, num_warps=warps)
    return found


def variants() -> list[Variant]:
    """All variants, names unique."""
    found = [*_matmul_cube(), *_matmul_shapes(), *_rmsnorm(), *_rows(), *_elementwise(), *held_out()]
    names = [v.name for v in found]
    if len(set(names)) != len(names):
        raise ValueError(f"variant names repeat: {sorted({n for n in names if names.count(n) > 1})}")
    return found
