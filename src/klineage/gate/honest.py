"""Honest kernels in number: every launcher of the expert packages that can be cut out as a module of its own.

The packages are read, never imported. They are looked for in the folder named by KLINEAGE_CORPUS, in ``./.corpus``,
and where they are installed.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from ..errors import KLineageError
from ..model.progress import NullProgress, Progress
from ..surface.pyast import parse_ast
from ..surface.slicing import slice_function

PACKAGES = ("liger_kernel", "fla", "conch", "cut_cross_entropy", "flag_gems")
_OTHER_DEVICES = {"runtime", "backend", "backends", "testing", "tests", "benchmark", "benchmarks", "transformers"}
_MOST_PER_PACKAGE = 400
# what a module of kernels and launchers imports; anything else is its package's machinery (registries, caches on disk,
# code generation, worker processes), which no candidate may bring
_PLAIN = {
    "torch", "triton", "math", "typing", "typing_extensions", "functools", "collections", "dataclasses", "enum",
    "itertools", "contextlib", "warnings", "logging", "operator", "packaging", "numbers", "inspect", "os", "abc",
    "copy", "einops", "__future__",
}  # fmt: skip
# launchers that leave part of the answer to torch or keep state on purpose: refused rightly
NOT_KERNELS_ALONE = {
    "fla.ops.rwkv7.channel_mixing:rwkv_channel_mixing_bwd": "compiled torch code and @",
    "conch.kernels.attention.paged_attention:paged_attention_launcher": "platform kept in a global",
    "conch.kernels.attention.varlen_attention:varlen_attention_launcher": "platform kept in a global",
    "conch.kernels.quantization.fp8:static_scaled_fp8_quant_launcher": "platform kept in a global",
    "conch.kernels.quantization.gemm:mixed_precision_gemm_launcher": "platform kept in a global",
    "conch.kernels.quantization.gemm:scaled_gemm_launcher": "platform kept in a global",
    "flag_gems.experimental_ops.reciprocal:_reciprocal_impl": "falls back to torch.ops.aten.reciprocal",
    "flag_gems.fused.cutlass_scaled_mm:_block_wise_128_smm_launcher": "block sizes kept in globals",
    "flag_gems.fused.mhc.hc_split_sinkhorn:hc_split_sinkhorn": "torch.sigmoid",
    "flag_gems.fused_moe_mxq:invoke_fused_moe": "torch.matmul",
    "flag_gems.ops._upsample_nearest_exact1d:_launch_upsample_nearest_exact1d_kernel": "falls back to torch.ops.aten",
}


def expert_slices(
    packages: Sequence[str] = PACKAGES, most: int = _MOST_PER_PACKAGE, jobs: int = 2, progress: Progress | None = None
) -> list[tuple[str, str]]:
    """(name, source) of at most ``most`` launchers of each package, spread over its files; packages that are not
    there are left out, and so are launchers that cannot be cut out or bring their package's machinery."""
    progress = progress or NullProgress()
    with _corpus() as path:
        specs = [spec for package in packages for spec in _spread(list(launchers(package)), most)]
        lots = [specs[i : i + 12] for i in range(0, len(specs), 12)]
        progress.start("cutting expert kernels out of their packages", len(lots))
        found: list[tuple[str, str]] = []
        try:
            with ProcessPoolExecutor(jobs, mp_context=get_context("forkserver")) as pool:
                for part in pool.map(_cut, [(path, lot) for lot in lots]):
                    found += part
                    progress.step()
        finally:
            progress.done()
    return found


def launchers(package: str) -> Iterator[str]:
    """``module:function`` of every top-level function of a package that launches a kernel of its own file."""
    spec = importlib.util.find_spec(package)
    for root in map(Path, (spec.submodule_search_locations or ()) if spec is not None else ()):
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if not set(parts) & _OTHER_DEVICES and not any(p.startswith("_") for p in parts[:-1]):
                name = ".".join((package, *parts)).removesuffix(".__init__")
                for function in _launching(path):
                    yield f"{name}:{function}"


def _launching(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    if "jit" not in text or "import triton" not in text:
        return []
    try:
        tree = parse_ast(text)
    except (SyntaxError, ValueError):
        return []
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    kernels = {f.name for f in functions if any("jit" in ast.unparse(d) for d in f.decorator_list)}
    return [f.name for f in functions if f.name not in kernels and _launches(f, kernels)]


def _launches(function: ast.FunctionDef, kernels: set[str]) -> bool:
    calls = (n.func for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript))
    return any(isinstance(c.value, ast.Name) and c.value.id in kernels for c in calls)


def _spread(specs: list[str], most: int) -> list[str]:
    step = max(1.0, len(specs) / most)
    return [specs[int(i * step)] for i in range(min(most, len(specs)))]


def _cut(task: tuple[str, list[str]]) -> list[tuple[str, str]]:
    path, specs = task
    if path and path not in sys.path:
        sys.path.insert(0, path)
    found: list[tuple[str, str]] = []
    for spec in specs:
        try:
            source = slice_function(spec).source
        except (KLineageError, RecursionError):  # it leans on its package in a way that cannot be cut out
            continue
        if spec not in NOT_KERNELS_ALONE and imports(source) <= _PLAIN:
            found.append((spec, source))
    return found


def imports(source: str) -> set[str]:
    """Top-level packages that a module's text imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(parse_ast(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


@contextmanager
def _corpus() -> Generator[str]:
    """The corpus folder first on the path, while packages are looked for; "" when there is none."""
    folder = Path(os.environ.get("KLINEAGE_CORPUS", ".corpus")).absolute()
    if not folder.is_dir():
        yield ""
        return
    sys.path.insert(0, str(folder))
    try:
        yield str(folder)
    finally:
        sys.path.remove(str(folder))
