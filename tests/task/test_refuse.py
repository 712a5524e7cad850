"""Tasks a trivial kernel would pass are refused, each for its own reason."""

from __future__ import annotations

import pytest

from klineage.errors import TaskError
from klineage.task import degenerate, load_task

HEAD = """
import torch
import torch.nn.functional as F
CASES = [{"n": 31}, {"n": 33}, {"n": 129}, {"n": 64, "role": "bench"}]

def make_inputs(case, generator):
    return (torch.randn(4, case["n"], generator=generator),)

"""

WORTHLESS = {
    "zeros": ("def reference(x):\n    return x * 0\n", "returns zeros"),
    "constant": ("def reference(x):\n    return x * 0 + 7\n", "returns a constant"),
    "scalar-constant": ("def reference(x):\n    return (x * 0 + 7).mean()\n", "returns a constant"),
    "row-means": (
        "TOLERANCE = (0.5, 'loose')\ndef reference(x):\n    return 10 + x.clamp(-1, 1)\n", "returns a constant"
    ),
    "case-means": (
        "def reference(x):\n    return x.mean() + 0 * x\n", "its outputs' means"
    ),
    "constant-integers": ("def reference(x):\n    return torch.full((4,), 3)\n", "returns a constant"),
    "the-input": ("def reference(x):\n    return x.clone()\n", "returns input 0"),
    "an-input-in-disguise": ("def reference(x):\n    return x + 1e-9\n", "returns input 0"),
    "relu-of-positive": (
        "def reference(x):\n    return torch.relu(x)\n"
        "def make_inputs(case, generator):\n    return (torch.rand(4, case['n'], generator=generator),)\n",
        "returns input 0",
    ),
    "second-input": (
        "def reference(x, y):\n    return torch.maximum(x, y)\n"
        "def make_inputs(case, generator):\n"
        "    x = torch.rand(4, case['n'], generator=generator)\n    return x, x + 1\n",
        "returns input 1",
    ),
    "downcast": ("TOLERANCE = (0.02, 'loose')\ndef reference(x):\n    return x * 3\n", "silent downcast"),
    "anything": ("TOLERANCE = (1.5, 'very loose')\ndef reference(x):\n    return x * 3\n", "returns zeros"),
    "bench-dtype-unchecked": (
        "CASES[-1]['dtype'] = 'fp16'\n"
        "def reference(x):\n    return x * 3\n"
        "def make_inputs(case, generator):\n"
        "    x = torch.randn(4, case['n'], generator=generator)\n    return (x.half() if 'dtype' in case else x,)\n",
        "no check case has",
    ),
    "seed-ignored": (
        "def reference(x):\n    return x.cumsum(-1)\n"
        "def make_inputs(case, generator):\n    return (torch.arange(4.0 * case['n']).reshape(4, -1),)\n",
        "same for every seed",
    ),
    "seed-not-used": (
        "def reference(x):\n    return x.cumsum(-1)\n"
        "def make_inputs(case, generator):\n    return (torch.randn(4, case['n']),)\n",
        "other inputs for the same seed",
    ),
    "nan-everywhere": ("def reference(x):\n    return torch.sqrt(-1 - x * x)\n", "no finite value"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), WORTHLESS.values(), ids=WORTHLESS.keys())
def test_worthless_task_is_refused(tmp_path, text, says):
    path = tmp_path / "task.py"
    path.write_text(HEAD + text)
    reason = degenerate(load_task(path, check=False))
    assert reason is not None
    assert says in reason
    with pytest.raises(TaskError, match="is refused"):
        load_task(path)


SOUND = {
    "relu": "def reference(x):\n    return torch.relu(x)\n",
    "softmax": "def reference(x):\n    return F.softmax(x, -1)\n",
    "row-sum": "def reference(x):\n    return x.sum(-1)\n",
    "scalar": "def reference(x):\n    return torch.clamp(1 - x, min=0).mean()\n",
    "argmax": "def reference(x):\n    return x.argmax(-1)\n",
    "half-precision": "def reference(x):\n    return torch.sin(x.half())\n",
    "two-outputs": "def reference(x):\n    return x, torch.sin(x)\n",
}


@pytest.mark.parametrize("text", SOUND.values(), ids=SOUND.keys())
def test_sound_task_is_not_refused(tmp_path, text):
    path = tmp_path / "task.py"
    path.write_text(HEAD + text)
    assert degenerate(load_task(path, check=False)) is None
