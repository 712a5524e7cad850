"""Measure the calibration variants on the GPU of this machine and write JSON.

    python benchmarks/calibrate.py measure out.json      time every variant (median, L2 flushed, inputs rotated)
    python benchmarks/calibrate.py once                  run every variant once, for a profiler
    python benchmarks/calibrate.py precompile            fill Triton's cache from several processes

Times are device-event times of one launcher call, host work hidden behind the flush. Needs torch with CUDA, triton.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import calibration_kernels as kernels
import torch
import triton
import triton.language as tl
from calibration_variants import Spec, Variant, variants

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
BUDGET_MS = 40.0
PROCESSES = 10


def make(spec: Spec, seed: int) -> torch.Tensor:
    """A random input on the GPU."""
    dtype, shape = spec
    generator = torch.Generator(device="cuda").manual_seed(seed)
    if dtype.startswith("label:"):
        return torch.randint(0, int(dtype.split(":")[1]), shape, device="cuda", generator=generator)
    return torch.randn(shape, device="cuda", dtype=DTYPES[dtype], generator=generator) * 0.5


def make_all(variant: Variant, seed: int) -> list[torch.Tensor]:
    """Random inputs of a variant."""
    return [make(spec, seed + 10 * index) for index, spec in enumerate(variant.inputs)]


def call(variant: Variant, inputs: list[torch.Tensor]) -> torch.Tensor:
    """One launcher call."""
    return getattr(kernels, variant.launcher)(*inputs, **variant.params)


class Flush:
    """Writes eight times the L2 so that a launch starts cold and the host runs ahead of the device."""

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties(0).L2_cache_size
        self.buffer = torch.empty(8 * size, dtype=torch.int8, device="cuda")

    def __call__(self) -> None:
        self.buffer.zero_()


def timed(
    run: Callable[[int], Any], flush: Callable[[], None] | None, budget_ms: float = BUDGET_MS
) -> dict[str, float]:
    """Median, quartiles and count of device-event times in us. ``run(i)`` makes call i."""

    def once(index: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if flush is not None:
            flush()
        start.record()
        run(index)
        end.record()
        return start, end

    for index in range(2):
        once(index)
    pairs = [once(index) for index in range(3)]
    torch.cuda.synchronize()
    estimate = min(a.elapsed_time(b) for a, b in pairs)
    count = max(7, min(60, int(budget_ms / max(estimate, 0.02))))
    pairs = [once(index) for index in range(count)]
    torch.cuda.synchronize()
    times = sorted(1000 * a.elapsed_time(b) for a, b in pairs)
    quartiles = statistics.quantiles(times, n=4)
    return {"us": statistics.median(times), "q1": quartiles[0], "q3": quartiles[2], "reps": count}


def compiled_facts() -> dict[str, dict[str, int]]:
    """Registers, spills and shared memory of every kernel in the module's caches, then empty them."""
    facts: dict[str, dict[str, int]] = {}
    for name, function in vars(kernels).items():
        if isinstance(function, triton.JITFunction):
            for caches in function.device_caches.values():
                for compiled in caches[0].values():
                    facts[name] = {
                        "registers": compiled.n_regs,
                        "spills": compiled.n_spills,
                        "smem": compiled.metadata.shared,
                    }
            function.device_caches.clear()
    return facts


def error_of(variant: Variant, inputs: list[torch.Tensor]) -> float | None:
    """Relative error against torch for the launchers with a one-line reference; None for the others."""
    references: dict[str, Callable[..., torch.Tensor]] = {
        "rmsnorm": lambda x, w: torch.nn.functional.rms_norm(x.float(), x.shape[-1:], w.float(), 1e-6),
        "layernorm": lambda x, w, b: torch.nn.functional.layer_norm(x.float(), x.shape[-1:], w.float(), b.float()),
        "softmax": lambda x: torch.softmax(x.float(), -1),
        "swiglu": lambda a, b: torch.nn.functional.silu(a.float()) * b.float(),
        "transpose": lambda x: x.T.float(),
        "column_sum": lambda x: x.float().sum(0),
        "cross_entropy": lambda x, y: torch.nn.functional.cross_entropy(x.float(), y, reduction="none"),
        "attention": lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=bool(variant.params.get("CAUSAL"))
        ).float(),
    }
    if variant.launcher.startswith("matmul"):
        b = inputs[1].T if variant.params.get("transposed_b") else inputs[1]
        expected = inputs[0].float() @ b.float()
        if variant.params.get("epilogue") in ("fused", "separate"):
            expected += inputs[2].float()
            expected *= torch.sigmoid(1.702 * expected)
    elif variant.launcher in references:
        expected = references[variant.launcher](*inputs)
    else:
        return None
    found = call(variant, inputs).float()
    return float((found - expected).norm() / expected.norm())


def measure_variant(variant: Variant, flush: Flush) -> dict[str, Any]:
    """Time one variant; a failure is recorded, not raised."""
    torch.cuda.empty_cache()
    try:
        size = sum(torch.Size(shape).numel() for _, shape in variant.inputs)
        sets = [make_all(variant, seed) for seed in range(2 if size < 2**29 else 1)]
        error = error_of(variant, sets[0])
        facts = compiled_facts()
        launcher = getattr(kernels, variant.launcher)
        timing = timed(lambda index: launcher(*sets[index % len(sets)], **variant.params), flush)
    except Exception as problem:
        return {"name": variant.name, "failed": f"{type(problem).__name__}: {problem}"[:200]}
    return {"name": variant.name, **timing, "error": error, "compiled": facts}


@triton.jit
def _chase_kernel(next_ptr, out_ptr, steps):
    at = tl.load(out_ptr)  # goes on where the last call ended, so that small buffers are warm and large ones never
    for _ in range(steps):
        at = tl.load(next_ptr + at)
    tl.store(out_ptr, at)


@triton.jit
def _read_kernel(x_ptr, out_ptr, n, rounds, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for _ in range(rounds):
        for start in range(tl.program_id(0) * BLOCK, n, PROGRAMS * BLOCK):
            acc += tl.load(x_ptr + start + tl.arange(0, BLOCK), cache_modifier=".cg")
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), acc)


@triton.jit
def _empty_kernel(x_ptr):
    pass


def bandwidths() -> dict[str, float]:
    """GB/s of a device copy (bytes read plus written), a fill, a read, and reads of buffers that fit the L2."""
    found: dict[str, float] = {}
    source = torch.randn(1 << 30, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    found["copy_gbps"] = 2 * source.nbytes / timed(lambda _: target.copy_(source), None, 200)["us"] / 1e3
    found["fill_gbps"] = target.nbytes / timed(lambda _: target.zero_(), None)["us"] / 1e3
    found["read_gbps"] = source.nbytes / timed(lambda _: source.sum(), None)["us"] / 1e3
    rounds, programs = 40, 132 * 4
    out = torch.empty(programs * 2048, device="cuda")
    kernel = _read_kernel[(programs,)]
    for megabytes in (8, 24, 48):
        n = megabytes << 18
        us = timed(lambda _: kernel(source, out, n, rounds, BLOCK=2048, PROGRAMS=programs, num_warps=8), None)["us"]  # noqa: B023
        found[f"l2_read_gbps_{megabytes}mb"] = n * 4 * rounds / us / 1e3
    return found


def ceilings(flush: Flush) -> dict[str, float]:
    """Device ceilings: copy bandwidth, L2 read bandwidth, latencies, library matrix rates, launch overhead."""
    found = bandwidths()
    for label, count in (("l1_16kb", 1 << 11), ("l2_4mb", 1 << 19), ("dram_256mb", 1 << 25), ("dram_2gb", 1 << 28)):
        order = torch.randperm(count, device="cuda")
        chain = torch.empty_like(order)
        chain[order] = torch.roll(order, -1)
        out = torch.zeros(1, dtype=torch.int64, device="cuda")
        steps = 8000
        us = timed(lambda _: _chase_kernel[(1,)](chain, out, steps, num_warps=1), None)["us"]  # noqa: B023
        found[f"latency_ns_{label}"] = 1000 * us / steps
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
        us = timed(lambda _: a @ b, None)["us"]  # noqa: B023
        found[f"library_tflops_{str(dtype).split('.')[1]}"] = 2 * 8192**3 / us / 1e6
    out = torch.empty(1, device="cuda")
    found["empty_launch_us"] = timed(lambda _: _empty_kernel[(1,)](out), flush)["us"]
    found["two_empty_launches_us"] = timed(lambda _: (_empty_kernel[(1,)](out), _empty_kernel[(1,)](out)), flush)["us"]
    found["empty_65536_blocks_us"] = timed(lambda _: _empty_kernel[(65536,)](out), flush)["us"]
    return found


def measure(path: Path, wanted: str = "") -> None:
    """Measure everything and write ``path``, also after every tenth variant."""
    properties = torch.cuda.get_device_properties(0)
    flush = Flush()
    record: dict[str, Any] = {
        "device": properties.name,
        "sms": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "ceilings": ceilings(flush),
        "variants": [],
    }
    print(json.dumps(record["ceilings"], indent=1), flush=True)
    for index, variant in enumerate(v for v in variants() if wanted in v.name):
        result = measure_variant(variant, flush)
        record["variants"].append(result)
        print(result["name"], result.get("failed") or f"{result['us']:.1f} us  error {result['error']}", flush=True)
        if index % 10 == 0:
            path.write_text(json.dumps(record))
    path.write_text(json.dumps(record, indent=1))


def _compile_share(share: int) -> None:
    for variant in variants()[share::PROCESSES]:
        try:
            call(variant, make_all(variant, 0))
            torch.cuda.synchronize()
        except Exception as problem:
            print("precompile", variant.name, f"{type(problem).__name__}: {problem}"[:200], flush=True)
        torch.cuda.empty_cache()


def precompile() -> None:
    """Run every variant once, spread over processes, so that measuring finds Triton's cache full."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_compile_share, args=(share,)) for share in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def once() -> None:
    """Run every variant twice with the profiler on for the second run; print how many launches each makes."""
    for variant in variants():
        try:
            inputs = make_all(variant, 0)
            launcher = getattr(kernels, variant.launcher)
            launcher(*inputs, **variant.params)
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            launcher(*inputs, **variant.params)
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
        except Exception as problem:
            print("once", variant.name, f"{type(problem).__name__}: {problem}"[:200], flush=True)


if __name__ == "__main__":
    started = time.time()
    if sys.argv[1] == "measure":
        measure(Path(sys.argv[2]), *sys.argv[3:4])
    else:
        {"precompile": precompile, "once": once}[sys.argv[1]]()
    print(f"{sys.argv[1]}: {time.time() - started:.0f} s", flush=True)
