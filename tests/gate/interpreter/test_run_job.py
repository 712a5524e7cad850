"""The correctness job: what comes back, what is refused, what is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from packaging.version import parse

Run = Callable[..., dict[str, Any]]
HEADER = "import torch, triton\nimport triton.language as tl\n\n"
COPY = (
    HEADER
    + """
@triton.jit
def copy(xp, op, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(op + i, tl.load(xp + i, mask=i < n), mask=i < n)
"""
)


def launcher(body: str) -> str:
    return COPY + "\ndef run(x):\n" + "\n".join(f"    {line}" for line in body.splitlines())


HONEST = launcher("o = torch.empty_like(x)\ncopy[(triton.cdiv(x.numel(), 32),)](x, o, x.numel(), B=32)\nreturn o")


# ------------------------------------------------------------------ refused
@pytest.mark.parametrize(
    ("store", "kind", "words"),
    [
        ("tl.store(o + i, tl.load(x + i + 16))", "out_of_bounds", "out-of-bounds load: 16 of 64 lanes"),
        ("tl.store(o + i + 16, tl.load(x + i))", "out_of_bounds", "out-of-bounds store: 16 of 64 lanes"),
        ("tl.store(o + i - 1, tl.load(x + i))", "out_of_bounds", "first at byte -4 of o"),
        ("tl.atomic_add(o + i + 1, tl.load(x + i))", "out_of_bounds", "out-of-bounds atomic"),
        ("tl.store(o + tl.arange(0, 64) // 2, tl.load(x + i))", "write_race", "one store of program 0"),
        ("tl.store(o, tl.program_id(0).to(tl.float32))", "write_race", "programs 0 and 1 store different values"),
        ("tl.store(o + i, tl.load(o + 63 - i) + 1)", "read_race", "program 1 reads o where program 0 wrote"),
        ("tl.store(o + i, undefined)", "exception", "undefined"),
        ("tl.store(o + i, tl.load(x + i).to(tl.int32).to(tl.pointer_type(tl.int32)))", "exception", ""),
    ],
)
def test_a_faulty_kernel_is_an_outcome(run: Run, store: str, kind: str, words: str) -> None:
    source = f"""{HEADER}
@triton.jit
def kernel(x, o, B: tl.constexpr):
    i = {"tl.program_id(0) * 32 + tl.arange(0, 32)" if "race" in kind and "63" in store else "tl.arange(0, 64)"}
    {store}

def run(x):
    o = torch.empty_like(x)
    kernel[(2,)](x, o, B=64)
    return o
"""
    case = run(source, torch.arange(64.0))
    assert case["kind"] == kind, case
    assert words in case["error"]
    assert case["outputs"] == []


def test_a_fault_cannot_be_caught_and_covered_up(run: Run) -> None:
    body = """o = torch.empty_like(x)
try:
    copy[(2,)](x, o, 10 * x.numel(), B=512)
except BaseException:
    copy[(1,)](x, o, x.numel(), B=512)
return o"""
    case = run(launcher(body), torch.randn(100))
    assert case["kind"] == "out_of_bounds"


def test_a_slow_case_times_out(run: Run) -> None:
    body = "while True:\n    pass"
    case = run(launcher(body), torch.randn(4), case_timeout_s=0.3)
    assert (case["kind"], case["error"]) == ("timeout", "the case took longer than 0.3 s")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def run(:", "SyntaxError"),
        ("import nowhere_at_all", "No module named"),
        ("x = 1", "no function named run"),
        (launcher("return object()"), "returned a object"),
        (launcher("class T(torch.Tensor): pass\nreturn x.as_subclass(T)"), "tensor of class T"),
    ],
)
def test_text_that_is_no_kernel_is_an_outcome(run: Run, source: str, words: str) -> None:
    assert words in run(source, torch.randn(4))["error"]


def test_one_failing_case_leaves_the_next_alone(worker: Any) -> None:
    cases = [{"name": n, "inputs": [torch.ones(size)]} for n, size in (("small", 10), ("fits", 64))]
    source = launcher("o = torch.empty_like(x)\ncopy[(1,)](x, o, 64, B=64)\nreturn o")
    value = worker.run("klineage.gate.interpreter.jobs:run_job", {"source": source, "cases": cases}).value
    assert [(c["name"], c["kind"]) for c in value["cases"]] == [("small", "out_of_bounds"), ("fits", None)]


# ------------------------------------------------------------------ noticed
def test_unwritten_output_is_poison(run: Run) -> None:
    body = "o = torch.empty_like(x)\ncopy[(1,)](x, o, 40, B=64)\nreturn o, torch.empty(3, dtype=torch.int16)"
    values, integers = run(launcher(body), torch.randn(64))["outputs"]
    assert values[40:].isnan().all() and not values[:40].isnan().any()
    assert integers.view(torch.uint8).eq(0xA5).all()


@pytest.mark.parametrize("make", ["x.new_empty(64)", "torch.empty_strided((64,), (1,), device=x.device)",
                                  "torch.empty(64, dtype=torch.float16)", "torch.empty(64, dtype=torch.bfloat16)",
                                  "torch.empty(64, dtype=torch.float8_e4m3fn)"])  # fmt: skip
def test_every_way_to_allocate_is_poisoned(run: Run, make: str) -> None:
    output = run(launcher(f"return {make}"), torch.randn(64))["outputs"][0]
    assert output.float().isnan().all()


def test_a_modified_input_is_named(run: Run) -> None:
    source = COPY + "\ndef run(x, y):\n    copy[(1,)](x, y, 4, B=4)\n    return x"
    case = run(source, torch.ones(4), torch.zeros(4))
    assert (case["modified"], case["aliases"]) == ([1], [[0, 0]])


def test_a_view_of_an_input_is_an_alias(run: Run) -> None:
    assert run(launcher("return x[2:], x.clone()"), torch.ones(4))["aliases"] == [[0, 0]]


@pytest.mark.parametrize(
    ("body", "flagged"),
    [
        ("return x @ x", ["torch.Tensor.matmul", "torch.Tensor.__matmul__"]),
        ("return torch.softmax(x, 1)", ["torch.softmax"]),
        ("y = x.to(torch.float32)\nreturn y * 2", ["torch.Tensor.mul"]),
        ("y = x.clone()\ny.add_(1)\nreturn y", ["torch.Tensor.add_"]),
    ],
)
def test_computing_with_torch_is_told(run: Run, body: str, flagged: list[str]) -> None:
    case = run(launcher(body), torch.randn(8, 8).half())
    assert len(case["torch_ops"]) == 1 and case["torch_ops"][0] in flagged
    assert case["launches"] == 0


def test_allocation_movement_and_work_on_scratch_are_not_suspicious(run: Run) -> None:
    body = """x = x.contiguous()
o = torch.zeros((2, 64), device=x.device)
copy[(1,)](x, o, 64, B=64)
n = (x.shape[0] + 1) // 2
w = torch.ones(64)
return o.sum(0), w.to(torch.float16)"""
    case = run(launcher(body), torch.randn(64, 2)[:, 0])
    assert case["torch_ops"] == []
    assert {"op": "torch.Tensor.sum", "calls": 1, "elements": 128} in case["scratch_ops"]


# ------------------------------------------------------------------ accepted
def test_an_honest_kernel(run: Run) -> None:
    x = torch.randn(100)
    case = run(HONEST, x)
    assert torch.equal(case["outputs"][0], x)
    expected = {"error": None, "kind": None, "modified": [], "aliases": [], "launches": 1, "kernels": ["copy"]}
    assert {k: case[k] for k in expected} == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(6, 8).t(),
        lambda: torch.randn(6, 8)[::2, 1::3],
        lambda: torch.randn(8)[None].expand(4, 8),
        lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
        lambda: torch.randn(0, 4),
    ],
    ids=["transposed", "stepped", "expanded", "permuted", "empty"],
)
def test_layouts_survive(run: Run, make: Callable[[], torch.Tensor]) -> None:
    x = make()
    case = run(launcher("return torch.tensor(x.stride()), x"), x)
    stride, same = case["outputs"]
    assert tuple(stride.tolist()) == x.stride() == same.stride()
    assert torch.equal(same, x)


def test_host_code_believes_in_a_gpu(run: Run) -> None:
    body = """assert x.is_cuda and x.device == torch.device("cuda", 0) and torch.cuda.is_available()
sms = torch.cuda.get_device_properties(x.device).multi_processor_count
with torch.cuda.device(x.device):
    o = torch.empty(x.shape, device="cuda")
    copy[(1,)](x, o, x.numel(), B=64)
return o, sms, torch.cuda.get_device_capability()[0]"""
    case = run(launcher(body), torch.ones(64), target="sm_80")
    assert case["error"] is None, case["error"]
    assert case["outputs"][1:] == [108, 8]


def test_programs_can_run_last_to_first(run: Run) -> None:
    source = (
        HEADER
        + """
@triton.jit
def kernel(counter, o):
    tl.store(o + tl.program_id(0), tl.atomic_add(counter, 1))

def run(x):
    o = torch.empty(4, dtype=torch.int32)
    kernel[(4,)](torch.zeros(1, dtype=torch.int32), o)
    return o
"""
    )
    assert run(source, torch.ones(1))["outputs"][0].tolist() == [0, 1, 2, 3]
    assert run(source, torch.ones(1), reverse=True)["outputs"][0].tolist() == [3, 2, 1, 0]


def test_a_lock_is_not_a_race(run: Run) -> None:
    source = (
        HEADER
        + """
@triton.jit
def kernel(lock, o):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o, tl.load(o) + 1)
    tl.atomic_xchg(lock, 0)

def run(x):
    o = torch.zeros(1)
    kernel[(5,)](torch.zeros(1, dtype=torch.int32), o)
    return o
"""
    )
    case = run(source, torch.ones(1))
    assert case["error"] is None, case["error"]
    assert case["outputs"][0].item() == 5


def test_in_place_on_its_own_row_is_not_a_race(run: Run) -> None:
    body = "copy[(4,)](x, x, x.numel(), B=16)\nreturn x"
    assert run(launcher(body), torch.randn(64))["error"] is None


@pytest.mark.parametrize(("index", "configs", "block"), [(0, {}, 32), (1, {}, 64), (0, {"kernel": {"B": "128"}}, 128)])
def test_the_configuration_is_chosen(run: Run, index: int, configs: dict[str, Any], block: int) -> None:
    source = (
        HEADER
        + """
@triton.autotune([triton.Config({"B": b}) for b in (32, 64, 128)], key=[])
@triton.jit
def kernel(o, B: tl.constexpr):
    tl.store(o, B)

def run(x):
    o = torch.empty(1, dtype=torch.int32)
    kernel[(1,)](o)
    return o
"""
    )
    case = run(source, torch.ones(1), config_index=index, configs=configs)
    assert case["outputs"][0].item() == block


def test_fp16_dot_accumulates_in_fp32_unless_told(run: Run) -> None:
    source = (
        HEADER
        + """
@triton.jit
def kernel(x, wide, narrow):
    r = tl.arange(0, 64)
    at = r[:, None] * 64 + r[None, :]
    a = tl.load(x + at)
    tl.store(wide + at, tl.dot(a, a))
    tl.store(narrow + at, tl.dot(a, a, out_dtype=tl.float16))

def run(x):
    wide = torch.empty(64, 64)
    narrow = torch.empty(64, 64, dtype=torch.float16)
    kernel[(1,)](x, wide, narrow)
    return wide, narrow
"""
    )
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(3)).half()
    wide, narrow = run(source, x)["outputs"]
    exact = x.double() @ x.double()
    assert (wide - exact).abs().max() < 1e-4
    assert 1e-3 < (narrow.double() - exact).abs().max() < 0.2


@pytest.mark.skipif(parse(triton.__version__) >= parse("3.9"), reason="block pointers were removed in Triton 3.9")
def test_block_pointers_with_boundary_checks(run: Run) -> None:
    source = (
        HEADER
        + """
@triton.jit
def kernel(x, o, M, N, B: tl.constexpr):
    p = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    q = tl.make_block_ptr(o, (M, N), (N, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    for j in range(0, N, B):
        tile = tl.load(p, boundary_check=(0, 1), padding_option="zero")
        tl.store(q, tile * 2, boundary_check=(0, 1))
        p = tl.advance(p, (0, B))
        q = tl.advance(q, (0, B))

def run(x):
    o = torch.empty_like(x)
    kernel[(triton.cdiv(x.shape[0], 16),)](x, o, x.shape[0], x.shape[1], B=16)
    return o
"""
    )
    x = torch.randn(40, 50).bfloat16()
    case = run(source, x)
    assert case["error"] is None, case["error"]
    assert torch.equal(case["outputs"][0], x * 2)


def test_tensor_descriptors_from_host_and_device(run: Run) -> None:
    source = (
        HEADER
        + """
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def kernel(given, o, M, N, B: tl.constexpr):
    made = tl.make_tensor_descriptor(o, [M, N], [N, 1], [B, B])
    at = [tl.program_id(0) * B, tl.program_id(1) * B]
    made.store(at, given.load(at) * 2)

def run(x):
    o = torch.empty_like(x)
    grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 16))
    kernel[grid](TensorDescriptor.from_tensor(x, [16, 16]), o, x.shape[0], x.shape[1], B=16)
    return o
"""
    )
    x = torch.randn(40, 48).bfloat16()
    case = run(source, x)
    assert case["error"] is None, case["error"]
    assert torch.equal(case["outputs"][0], x * 2)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_package_launcher_runs_as_it_is(run: Run, dtype: torch.dtype) -> None:
    source = """
from liger_kernel.ops.rms_norm import rms_norm_forward

def run(x, w):
    return rms_norm_forward(x, w, 1e-6, 0.0, "llama", None)[0]
"""
    x, w = torch.randn(33, 257).to(dtype), torch.randn(257).to(dtype)
    case = run(source, x, w)
    assert case["error"] is None, case["error"]
    assert case["torch_ops"] == []
    expected = torch.nn.functional.rms_norm(x.double(), (257,), w.double(), 1e-6)
    error = (case["outputs"][0].double() - expected).abs().max() / expected.abs().max()
    assert error < 2 * torch.finfo(dtype).eps
