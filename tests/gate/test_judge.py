"""The judge from end to end: honest kernels pass with their evidence, broken and hostile ones get their own verdict."""

from pathlib import Path

import pytest

from klineage.gate.judge import Gate, against
from klineage.gate.workers import Limits
from klineage.model import Kernel, Provenance, Status, target
from klineage.store import open_store
from klineage.task import load_task

HEAD = "import sys\n\nimport torch\nimport triton\nimport triton.language as tl\n\n\n"
KERNEL = """@triton.jit
def affine(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(y_ptr + offs, 2 * x + 1, mask=offs < n)


"""
RUN = """def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    affine[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
    return y
"""
HONEST = HEAD + KERNEL + RUN


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    store = open_store(str(tmp_path_factory.mktemp("store") / "store.db"))
    gate = Gate(target("sm_90"), store, limits=Limits(wall_s=12.0))
    yield gate.bind(load_task(Path(__file__).parent / "data" / "affine_task.py"))
    gate.close()
    store.close()


HUGE_DOT = "    z = tl.zeros((512, 512), tl.float16)\n    w = tl.dot(z, z)\n"
BROKEN = {
    "drops_the_tail": (HONEST.replace("triton.cdiv(n, 128)", "n // 128"), "rejected_numeric"),
    "half_sized_grid": (HONEST.replace("(triton.cdiv(n, 128),)", "((n + 255) // 256,)"), "rejected_numeric"),
    "wrong_constant": (HONEST.replace("2 * x + 1, mask", "2 * x, mask"), "rejected_numeric"),
    "hard_coded_shape": (HONEST.replace("n = x.numel()", "n = 33"), "rejected_numeric"),
    "writes_past_the_end": (HONEST.replace("2 * x + 1, mask=offs < n", "2 * x + 1"), "rejected_numeric"),
    "reads_past_the_end": (
        HONEST.replace("x_ptr + offs, mask=offs < n, other=0.0", "x_ptr + offs"), "rejected_numeric",
    ),
    "wrong_dtype": (HONEST.replace("    return y\n", "    return y.double()\n"), "rejected_numeric"),
    "wrong_shape": (HONEST.replace("    return y\n", "    return y[None]\n"), "rejected_numeric"),
    "nan_everywhere": (HONEST.replace("2 * x + 1", "x * float('nan')"), "rejected_numeric"),
    "empty_output": (HONEST.replace("y_ptr + offs, 2 * x + 1, mask=offs < n", "y_ptr + offs, 2 * x + 1, mask=offs < 0"),
                     "rejected_numeric"),
    "raises": (HONEST.replace("    n = x.numel()", "    raise ValueError('no')\n    n = x.numel()"), "rejected"),
    "too_much_shared_memory": (
        HONEST.replace("    x = tl.load", f"{HUGE_DOT}    x = tl.load")
        .replace("2 * x + 1, mask", "2 * x + 1 + tl.sum(w), mask"), "rejected",
    ),
    "returns_the_input": (HONEST.replace("    return y\n", "    return x\n"), "rejected_hack"),
    "mutates_its_input": (HONEST.replace("    return y\n", "    x.zero_()\n    return y\n"), "rejected_hack"),
    "no_kernel": (HEAD + KERNEL + "def run(x):\n    return 2 * x + 1\n", "rejected_hack"),
    "decoy_kernel_beside_torch": (HONEST.replace("    return y\n", "    return 2 * x + 1\n"), "rejected_hack"),
    "fallback_on_error": (
        HONEST.replace("    affine[", "    try:\n        affine[")
        .replace("BLOCK=128)\n", "BLOCK=100)\n    except Exception:\n        y = 2 * x + 1\n"), "rejected",
    ),
    "torch_operator": (HEAD + "def run(x):\n    return torch.addmm(x, x, x)\n", "rejected_policy"),
    "syntax_error": ("def run(x:\n", "rejected_policy"),
    "exits_quietly": (HONEST.replace("    n = x", "    sys.exit(0)\n    n = x"), "rejected"),
    "floods_its_output": (HONEST.replace("    n = x", "    sys.stdout.write('x' * 10**9)\n    n = x"), "rejected"),
    "never_ends": (HONEST.replace("    n = x", "    while True:\n        pass\n    n = x"), "rejected"),
}  # fmt: skip


@pytest.mark.parametrize("trick", BROKEN)
def test_broken_kernel_is_rejected_with_a_reason(judge, trick):
    source, expected = BROKEN[trick]
    verdict = judge.judge(Kernel(source=source))
    assert verdict.status.startswith(expected), (verdict.status, verdict.reason)
    assert verdict.reason and "\n" not in verdict.reason


def test_honest_kernel_is_accepted_with_evidence(judge):
    verdict = judge.judge(Kernel(source=HONEST))
    assert verdict.status is Status.ACCEPTED, verdict.reason
    assert verdict.mode is Provenance.MODELLED
    assert {c.case for c in verdict.cases} == {"odd", "tail", "odd-again", "tail-again"}
    assert verdict.launches[0].registers > 0 and verdict.launches[0].sass["total"] > 0
    assert verdict.times[0].latency.value > 0 and verdict.times[0].launches[0].terms
    moved = verdict.traffic[0]
    assert moved.bytes_loaded == pytest.approx(2**22 * 2) and moved.bytes_stored == pytest.approx(2**22 * 2)
    assert verdict.blind_spots


def test_same_text_in_another_format_shares_the_verdict(judge):
    first = judge.judge(Kernel(source=HONEST))
    second = judge.judge(Kernel(source=HONEST.replace("n = x.numel()", "n = x.numel()  # elements")))
    assert second.kernel != first.kernel
    assert second.latency_us == first.latency_us and second.status is first.status


def test_slower_than_the_incumbent_is_its_own_verdict(judge):
    fast = judge.judge(Kernel(source=HONEST))
    slow = Kernel(
        source=HONEST.replace("(triton.cdiv(n, 128),)", "(triton.cdiv(n, 16),)").replace("BLOCK=128", "BLOCK=16")
    )
    verdict = judge.judge(slow, fast)
    assert verdict.status is Status.REJECTED_SLOW and verdict.incumbent == fast.kernel
    assert against(fast, fast) is fast


def test_verdict_survives_in_the_store(judge):
    verdict = judge.judge(Kernel(source=HONEST))
    kept = judge.gate.store.find_verdict(judge.task.id, verdict.kernel, judge.environment.fingerprint)
    assert kept is not None and kept.latency_us == verdict.latency_us


@pytest.mark.parametrize("name", ["sm_80", "sm_89", "sm_100", "sm_120"])
def test_other_targets_are_profiled(judge, name):
    ((timed, launches, why),) = judge.profile(Kernel(source=HONEST), judge.task.bench_cases, target(name))
    assert why == "" and timed.latency.value > 0 and launches
