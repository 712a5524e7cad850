"""Compiling without a GPU: what is refused and how it is said, then what a launch's report holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from klineage.errors import KernelError
from klineage.gate.compile import CompileOutcome, compile_kernel, make_input, specs_of
from klineage.gate.workers import Limits, Zygote
from klineage.model import TARGETS, Kernel, target

sys.path.insert(0, str(Path(__file__).parent))
from kernels_text import COPY, DESCRIPTOR, HEAD, MATMUL, SPILLING, copy_with

SM90 = target("sm_90")


def tensor(*shape: int, dtype: str = "float16", offset: int = 0) -> tuple[Any, ...]:
    stride = [1]
    for size in reversed(shape[1:]):
        stride.insert(0, stride[0] * size)
    return ("tensor", list(shape), stride, dtype, offset)


SMALL = [("small", [tensor(64, 64)])]
SQUARE = [("square", [tensor(2048, 2048), tensor(2048, 2048)])]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote("compile", cache_dir=tmp_path_factory.mktemp("cache")) as z:
        yield z


def compiled(zygote: Zygote, source: str, cases: Any = SMALL, to: str = "sm_90", **options: Any) -> CompileOutcome:
    return compile_kernel(zygote, Kernel(source=source), cases, target(to), **options)


REFUSED = {
    "syntax error": ("def run(x:\n", "host", ["SyntaxError", "line 1"]),
    "no entry": ("x = 1\n", "host", ["no function 'run'"]),
    "import fails": ("import not_there\n", "host", ["ModuleNotFoundError: No module named 'not_there'", "line 1"]),
    "host error": (
        copy_with("y = torch.empty_like(x)", "y = torch.empty_like(x); x.shape[7]"),
        "host",
        ["IndexError", "line 12: y = torch", "case small"],
    ),
    "unknown name in the kernel": (
        copy_with("tl.load(x + at, ", "tl.load(z + at, "),
        "compile",
        ["z is not defined", "line 3 of copy_kernel: tl.store", "case small"],
    ),
    "failed static assertion": (
        copy_with("    at = ", "    tl.static_assert(BLOCK == 7, 'seven only')\n    at = "),
        "compile",
        ["seven only", "copy_kernel"],
    ),
    "block not a power of two": (copy_with("BLOCK=1024", "BLOCK=1000"), "compile", ["power of 2", "copy_kernel"]),
    "too many threads": (copy_with("num_warps=4", "num_warps=64"), "resources", ["threads 2048 exceeds 1024"]),
    "grid beyond the limit": (
        copy_with("[(triton.cdiv(x.numel(), 1024),)]", "[(1, 70000)]"),
        "resources",
        ["grid of 70000 in y exceeds the limit of 65535 in copy_kernel, case small"],
    ),
    "ptxas refuses": (
        copy_with(
            "    tl.store",
            "    at = tl.inline_asm_elementwise('no.such $0, $1;', '=r,r', [at], tl.int32, True, 1)\n    tl.store",
        ),
        "compile",
        ["ptxas for sm_90", "in copy_kernel, case small"],
    ),
    "unknown launch option": (copy_with("num_warps=4", "num_worps=4"), "host", ["num_worps"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_and_where_in_one_line(zygote: Zygote, name: str):
    source, kind, words = REFUSED[name]
    outcome = compiled(zygote, source)
    assert not outcome.ok
    assert outcome.kind == kind, outcome.reason
    for word in words:
        assert word in outcome.reason
    assert "\n" not in outcome.reason and len(outcome.reason) < 500
    assert ".version" not in outcome.output_tail, "the PTX was printed"


def test_shared_memory_beyond_the_limit(zygote: Zygote):
    source = MATMUL.replace('"BK": 32', '"BK": 256').replace("num_stages=3", "num_stages=4")
    outcome = compiled(zygote, source, SQUARE)
    assert outcome.kind == "resources"
    assert outcome.reason.startswith("shared memory ")
    assert outcome.reason.endswith("bytes exceeds 232448 of sm_90 in matmul_kernel, case square")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nos._exit(0)\n", "exited with status 0"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "SIGKILL"),
        ("while True: pass\n", "no answer within 2 s"),
    ],
    ids=["exits", "kills itself", "never ends"],
)
def test_a_module_that_ends_its_worker(zygote: Zygote, text: str, words: str):
    outcome = compiled(zygote, text, limits=Limits(wall_s=2))
    assert outcome.kind == "worker"
    assert words in outcome.reason
    assert compiled(zygote, COPY).ok


def test_another_language_is_refused(zygote: Zygote):
    with pytest.raises(KernelError, match="cuda"):
        compile_kernel(zygote, Kernel(source="__global__ void f() {}", language="cuda"), SMALL, SM90)


def test_no_launch_is_reported_as_none(zygote: Zygote):
    outcome = compiled(zygote, "def run(x):\n    return x\n")
    assert outcome.ok
    assert outcome.launches == {"small": []}


def test_an_empty_grid_launches_nothing(zygote: Zygote):
    outcome = compiled(zygote, COPY, [("empty", [tensor(0)])])
    assert outcome.launches == {"empty": []}


def test_a_launch_report(zygote: Zygote):
    cases = [("aligned", [tensor(4096)]), ("odd", [tensor(1001, offset=1)])]
    outcome = compiled(zygote, COPY, cases)
    assert outcome.ok, outcome.reason
    (aligned,), (odd,) = outcome.launches["aligned"], outcome.launches["odd"]
    assert (aligned.kernel, aligned.grid, aligned.num_warps) == ("copy_kernel", (4, 1, 1), 4)
    assert aligned.constexprs == {"BLOCK": "1024"}
    assert aligned.arg_types == ("x:*fp16/16", "y:*fp16/16", "n:i32/16")
    assert odd.arg_types == ("x:*fp16", "y:*fp16/16", "n:i32")
    assert (odd.grid, aligned.spill_bytes, aligned.smem_bytes) == ((1, 1, 1), 0, 0)
    assert aligned.sass["LDG.128"] == 1
    assert "LDG.128" not in odd.sass
    assert aligned.sass_hash != odd.sass_hash
    assert aligned.occupancy.fraction == 1.0
    assert 0 < aligned.registers < 64
    x, y, n, _ = outcome.arguments["odd"][0]
    assert (x.input, y.input) == (0, None)
    assert x.value == {"shape": [1001], "stride": [1], "dtype": "float16"}
    assert n.value == 1001


def test_the_same_text_is_compiled_once(zygote: Zygote):
    source = copy_with("1024", "2048")
    first, second = compiled(zygote, source), compiled(zygote, source)
    assert first.launches["small"][0].compile_s
    assert second.launches["small"][0].compile_s is None
    assert first.signature == second.signature


def test_the_signature_sees_code_and_not_names(zygote: Zygote):
    plain = compiled(zygote, COPY)
    renamed = compiled(
        zygote, COPY.replace("copy_kernel", "other_name").replace("at ", "where ").replace("at,", "where,")
    )
    wider = compiled(zygote, copy_with("num_warps=4", "num_warps=8"))
    assert renamed.ok, renamed.reason
    assert plain.signature == renamed.signature
    assert plain.signature != wider.signature


def test_autotuning_reports_the_final_launch_and_its_configuration(zygote: Zygote):
    outcome = compiled(zygote, MATMUL, SQUARE)
    assert outcome.ok, outcome.reason
    (launch,) = outcome.launches["square"]
    assert outcome.trials == 2
    assert launch.config and f"BM: {launch.constexprs['BM']}" in launch.config
    assert launch.grid[0] == (2048 // int(launch.constexprs["BM"])) * (2048 // int(launch.constexprs["BN"]))


def test_the_score_can_be_replaced(zygote: Zygote):
    large = compiled(zygote, MATMUL, SQUARE).launches["square"][0]
    small = compiled(zygote, MATMUL, SQUARE, score="worker_jobs:most_programs").launches["square"][0]
    assert (large.constexprs["BM"], small.constexprs["BM"]) == ("128", "64")


def test_trials_are_capped(zygote: Zygote):
    outcome = compiled(zygote, MATMUL, SQUARE, max_configs=1)
    assert outcome.trials == 1
    assert outcome.launches["square"][0].constexprs["BM"] == "128"


def test_a_configuration_that_does_not_fit_is_passed_over(zygote: Zygote):
    source = MATMUL.replace('"BM": 128, "BN": 128, "BK": 32', '"BM": 256, "BN": 128, "BK": 256')
    outcome = compiled(zygote, source, SQUARE, max_configs=1)
    assert outcome.ok, outcome.reason
    assert outcome.launches["square"][0].constexprs["BM"] == "64"


INSTRUCTION = {"sm_80": "HMMA", "sm_89": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCHMMA", "sm_120": "HMMA"}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_target_uses_its_tensor_cores(zygote: Zygote, name: str):
    outcome = compiled(zygote, MATMUL, SQUARE, to=name, max_configs=1)
    assert outcome.ok, outcome.reason
    (launch,) = outcome.launches["square"]
    assert launch.sass[INSTRUCTION[name]] > 0
    assert launch.sass["loop"] > 0
    assert 0 < launch.smem_bytes <= TARGETS[name].smem_per_block_bytes


def test_descriptors_from_host_and_device(zygote: Zygote):
    outcome = compiled(zygote, DESCRIPTOR, [("d", [tensor(512, 512)])])
    assert outcome.ok, outcome.reason
    (launch,) = outcome.launches["d"]
    assert launch.sass["UTMALDG"] >= 1
    assert launch.sass["UTMASTG"] >= 1
    assert launch.arg_types[0].startswith("src:tensordesc<fp16")


def test_spills_are_counted(zygote: Zygote):
    outcome = compiled(zygote, SPILLING, [("s", [tensor(4096, dtype="float32")])])
    assert outcome.ok, outcome.reason
    (launch,) = outcome.launches["s"]
    assert launch.registers <= 32
    assert launch.spill_bytes > 0
    assert launch.stack_bytes > 0
    assert launch.sass["LDL"] > 0


def test_host_code_sees_the_target(zygote: Zygote):
    source = copy_with(
        "[(triton.cdiv(x.numel(), 1024),)]",
        "[(torch.cuda.get_device_properties(x.device).multi_processor_count * torch.cuda.get_device_capability()[0],)]",
    ).replace("    y =", "    assert x.is_cuda and x.device.type == 'cuda' and torch.cuda.is_available()\n    y =")
    assert compiled(zygote, source).launches["small"][0].grid == (132 * 9, 1, 1)
    assert compiled(zygote, source, to="sm_80").launches["small"][0].grid == (108 * 8, 1, 1)


def test_host_code_may_read_integer_values(zygote: Zygote):
    source = HEAD + COPY[len(HEAD) :].replace("def run(x):", "def run(x, index):").replace(
        "[(triton.cdiv(x.numel(), 1024),)]", "[(int((index != -1).sum().item()),)]"
    )
    cases = [("i", [tensor(64), ("data", torch.tensor([3, -1, 5, 6]))])]
    assert compiled(zygote, source, cases).launches["i"][0].grid == (3, 1, 1)


def test_host_code_may_read_values_of_large_inputs(zygote: Zygote):
    source = copy_with("    y =", "    assert not x.abs().max() > 1e4\n    y =")
    outcome = compiled(zygote, source, [("big", [tensor(4096, 4096)])])
    assert outcome.ok, outcome.reason
    assert outcome.launches["big"][0].grid == (16384, 1, 1)


def test_specs_keep_layout_and_small_integers():
    inputs = (torch.zeros(6, 8, dtype=torch.bfloat16).t()[1:], torch.arange(3), 2.5, None)
    specs = specs_of(inputs)
    assert specs[0] == ("tensor", [7, 6], [1, 8], "bfloat16", 1)
    assert specs[1][0] == "data" and torch.equal(specs[1][1], inputs[1])
    assert specs[2:] == [("value", 2.5), ("value", None)]


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_inputs_have_their_layout(device: str):
    made = make_input(("tensor", [7, 6], [1, 8], "bfloat16", 1), device)
    assert (made.shape, made.stride(), made.storage_offset()) == ((7, 6), (1, 8), 1)
    assert made.dtype is torch.bfloat16
    assert made.data_ptr() % 16 == 2
    assert make_input(("tensor", [0, 4], [4, 1], "float32", 0), device).shape == (0, 4)


def test_an_unknown_spec_is_refused():
    with pytest.raises(ValueError, match="unknown input spec"):
        make_input(("tenser", [1], [1], "float32"), "meta")


LIGER = {
    "rms_norm": (
        "from liger_kernel.ops.rms_norm import rms_norm_forward\n"
        "def run(x, w):\n    return rms_norm_forward(x, w, 1e-6, 0.0, 'llama', None)[0]\n",
        [tensor(2048, 4096), tensor(4096)],
        "_rms_norm_forward_kernel",
    ),
    "softmax": (
        "from liger_kernel.ops.softmax import _softmax_forward\ndef run(x):\n    return _softmax_forward(x)[0]\n",
        [tensor(2048, 4096)],
        "_softmax_single_block_forward_kernel",
    ),
    "swiglu": (
        "from liger_kernel.ops.swiglu import swiglu_forward\ndef run(a, b):\n    return swiglu_forward(a, b)[2]\n",
        [tensor(2048, 4096), tensor(2048, 4096)],
        "_swiglu_forward_kernel",
    ),
    "cross_entropy": (
        "from liger_kernel.ops.cross_entropy import cross_entropy_forward\n"
        "def run(x, y):\n    return cross_entropy_forward(x, y, None, -100, 0.0, 0.0, 'mean', None, False)[0]\n",
        [tensor(64, 32000, dtype="bfloat16"), ("data", torch.arange(64))],
        "liger_cross_entropy_kernel",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGER)
def test_expert_functions_as_they_are(zygote: Zygote, name: str):
    source, specs, kernel = LIGER[name]
    outcome = compiled(zygote, source, [(name, specs)])
    assert outcome.ok, outcome.reason
    assert [x.kernel for x in outcome.launches[name]] == [kernel]
    assert outcome.launches[name][0].sass["total"] > 100
