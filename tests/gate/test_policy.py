"""The static policy: what it turns away, and that honest launchers pass."""

from pathlib import Path

import pytest

from klineage.gate.policy import check_policy
from klineage.task.loader import shipped_tasks

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param("def run(x, w):\n    return torch.matmul(x, w)\n", "torch.matmul", id="torch operator"),
        pytest.param("def run(x, w):\n    return x @ w\n", "@", id="matrix product operator"),
        pytest.param("def run(x, w):\n    return torch.einsum('ij,jk', x, w)\n", "einsum", id="einsum"),
        pytest.param("def run(x):\n    return x.softmax(-1)\n", ".softmax()", id="tensor method"),
        pytest.param("from torch import matmul as f\ndef run(x):\n    return f(x, x)\n", "matmul", id="renamed import"),
        pytest.param("triton.testing.do_bench = None\n", "do_bench", id="patched timer"),
        pytest.param("torch.allclose = lambda *a: True\n", "patching", id="patched comparison"),
        pytest.param("def run(x):\n    setattr(torch, 'a', 1)\n", "setattr", id="patch by setattr"),
        pytest.param("def run(x):\n    vars(torch).update(a=1)\n", "vars", id="patch by vars"),
        pytest.param("import gc\n", "gc", id="garbage collector"),
        pytest.param("import ctypes\n", "ctypes", id="ctypes"),
        pytest.param("import os\ndef run(x):\n    os._exit(0)\n", "_exit", id="exit"),
        pytest.param("import os\nKEY = os.environ.get('A')\n", "environ", id="environment read"),
        pytest.param("def run(x):\n    return open('/proc/self/mem')\n", "open", id="file access"),
        pytest.param("import threading\n", "threading", id="threads"),
        pytest.param("def run(x):\n    return eval('x')\n", "eval", id="eval"),
        pytest.param("def run(x):\n    return getattr(torch, 'mat' + 'mul')(x, x)\n", "computed", id="computed name"),
        pytest.param("def run(x):\n    global last\n    last = x\n", "state", id="global state"),
        pytest.param("torch.backends.cuda.matmul.allow_tf32 = True\n", "allow_tf32", id="global flag"),
        pytest.param("def run(x:\n", "syntax error", id="syntax error"),
    ],
)
def test_turns_away(text, what):
    findings = check_policy(HEAD + text)
    assert findings and any(what in str(f) for f in findings)


@pytest.mark.parametrize("name", sorted(shipped_tasks()))
def test_shipped_kernels_pass(name):
    for path in Path(shipped_tasks()[name]).parent.glob("kernels/*.py"):
        assert check_policy(path.read_text()) == []


def test_operators_inside_kernels_are_not_torch():
    text = HEAD + (
        "@triton.jit\ndef k(x_ptr, n, B: tl.constexpr):\n"
        "    x = tl.softmax(tl.load(x_ptr + tl.arange(0, B)))\n    print('x', x)\n"
        "    tl.store(x_ptr + tl.arange(0, B), x)\n"
    )
    assert check_policy(text) == []


def test_allocation_and_questions_about_tensors_pass():
    text = HEAD + (
        "def run(x):\n    y = torch.empty_like(x)\n"
        "    z = torch.zeros(x.shape[0], dtype=torch.float32, device=x.device)\n"
        "    n = x.numel() // x.shape[-1]\n    assert x.is_contiguous()\n    return y.view(-1, n), z\n"
    )
    assert check_policy(text) == []
