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
        pytest.param("import os\nN = os.getenv('FLA_' + 'X')\n", "computed", id="computed environment read"),
        pytest.param("f = torch.softmax\n", "torch.softmax", id="operator under another name"),
        pytest.param("from torch.nn import functional as G\ny = G.gelu\n", "G.gelu", id="module under another name"),
        pytest.param("def run(x, w):\n    return x.__matmul__(w)\n", "__matmul__", id="operator by its method"),
        pytest.param("import operator\ndef run(x, w):\n    return operator.matmul(x, w)\n", "operator", id="operator"),
        pytest.param("layer = torch.nn.Softmax(-1)\n", "torch module", id="torch module"),
        pytest.param("for torch.cuda.Event in (1,):\n    pass\n", "patching", id="patch by a loop"),
        pytest.param("(m := torch.cuda).Event = 1\n", "patching", id="patch of an expression"),
        pytest.param("def put(m):\n    m.Event = 1\nput(torch.cuda)\n", "patching", id="patch of an argument"),
        pytest.param("del torch.cuda.Event\n", "patching", id="patch by deletion"),
        pytest.param("def run(x):\n    run.last = x\n", "state", id="state on a function"),
        pytest.param("match torch:\n    case object(softmax=f):\n        pass\n", "matching", id="patterns"),
        pytest.param("with torch._C.DisableTorchFunction():\n    pass\n", "DisableTorchFunction", id="modes off"),
        pytest.param("s = torch.cuda.Stream()\n", "Stream", id="side stream"),
        pytest.param("raise SystemExit(0)\n", "SystemExit", id="exit by exception"),
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


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import os\nFAST = os.environ.get('FLA_USE_FAST_OPS', '0') == '1'\n", id="a package's switch"),
        pytest.param("import torch.nn.functional as F\ndef run(x):\n    return F.pad(x, (0, 1))\n", id="padding"),
        pytest.param("@torch.compiler.disable\ndef run(x):\n    return x\n", id="compiler hints"),
        pytest.param("def run(x):\n    return torch.cumsum(x, 0)\n", id="plans made with cumsum"),
        pytest.param("class A:\n    def __init__(self):\n        self.n = 1\n", id="attributes of its own"),
        pytest.param("def hook(nargs):\n    nargs['desc'].block_shape = [1]\n", id="descriptors in a hook"),
        pytest.param("ok = torch.ops.aten.is_non_overlapping_and_dense\ndef run(x):\n    return ok(x)\n", id="layout"),
    ],
)
def test_what_experts_need_passes(text):
    assert check_policy(HEAD + text) == []
