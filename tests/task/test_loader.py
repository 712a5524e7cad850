"""Task files: what is refused, in one line that says what to do; then what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from klineage.errors import Exit, TaskError
from klineage.model import CaseRole
from klineage.task import FRESH, load_task, shipped_tasks
from klineage.task.loader import _KNOWN

GOOD = """
import torch
CASES = [{"n": 31}, {"n": 33, "fresh": True}, {"n": 1 << 20, "role": "bench"}]

def make_inputs(case, generator):
    return (torch.randn(4, case["n"], generator=generator),)

def reference(x):
    return torch.relu(x)
"""


def write(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


BAD = {
    "syntax-error": ("def reference(x:\n", "mine.py:1"),
    "null-byte": ("x = 1\0", "mine.py"),
    "missing-package": ("import no_such_package_here\n", "pip install no_such_package_here"),
    "raises-on-import": ("raise ValueError('boom')\n", "ValueError: boom"),
    "exits-on-import": ("raise SystemExit(0)\n", "SystemExit"),
    "no-reference": (GOOD.replace("def reference", "def referenc"), "no reference"),
    "reference-is-a-number": (GOOD + "reference = 3\n", "reference is a int"),
    "no-make-inputs": (GOOD.replace("def make_inputs", "def makes"), "no make_inputs"),
    "no-cases": (GOOD + "CASES = []\n", "no CASES"),
    "cases-not-dicts": (GOOD + "CASES = [31, 33]\n", "not a dict"),
    "no-bench-case": (GOOD + "CASES = [{'n': 31}]\n", "no bench case"),
    "no-check-case": (GOOD + "CASES = [{'n': 31, 'role': 'bench'}]\n", "no check case"),
    "unknown-role": (GOOD + "CASES[0]['role'] = 'test'\n", "'check' or 'bench'"),
    "parameter-is-a-list": (GOOD + "CASES[0]['shape'] = [1, 2]\n", "shape is not a number"),
    "negative-seed": (GOOD + "CASES[0]['seed'] = -3\n", "non-negative"),
    "tolerance-without-reason": (GOOD + "TOLERANCE = 0.1\n", "the reason"),
    "tolerance-with-empty-reason": (GOOD + "TOLERANCE = (0.1, '')\n", "the reason"),
    "misspelt-tolerance": (GOOD + "TOLERENCE = (0.1, 'because')\n", "did you mean TOLERANCE"),
    "vendors-not-functions": (GOOD + "VENDORS = {'torch': 1}\n", "VENDORS"),
    "in-place-not-indices": (GOOD + "IN_PLACE = 'x'\n", "IN_PLACE"),
    "name-not-text": (GOOD + "NAME = 3\n", "make NAME a string"),
    "expert-without-function": (GOOD + "EXPERT = 'liger_kernel.ops'\n", "package.module:function"),
    "expert-without-adapter": (GOOD + "EXPERT = 'liger_kernel.ops.softmax:f'\n", "EXPERT_RUN"),
    "unknown-dtype": (
        GOOD.replace("torch.randn(4, case[\"n\"], generator=generator)", "tensor((4, 3), {'dtype': 'fp17'}, generator)")
        + "from klineage.task.inputs import tensor\n",
        "unknown dtype 'fp17'",
    ),
    "maker-raises": (GOOD.replace('case["n"]', 'case["columns"]'), "make_inputs failed on case"),
    "maker-returns-a-list-inside": (GOOD.replace("return (torch.randn", "return ([1], torch.randn"), "is a list"),
    "reference-raises": (GOOD.replace("torch.relu(x)", "x @ x"), "reference failed on case"),
    "reference-returns-a-number": (GOOD.replace("torch.relu(x)", "3"), "returns no tensor"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD.keys())
def test_bad_file_is_one_line_with_a_fix(tmp_path, text, says):
    with pytest.raises(TaskError) as caught:
        load_task(write(tmp_path, text))
    message = str(caught.value)
    assert says in message
    assert "\n" not in message
    assert caught.value.exit_status is Exit.USAGE


@pytest.mark.parametrize("name", ["no_such_task", "no/such/file.py"])
def test_unknown_task_lists_the_shipped_ones(name):
    with pytest.raises(TaskError, match=r"shipped tasks: .*rms_norm"):
        load_task(name)


def test_folder_and_binary_file_are_refused(tmp_path):
    with pytest.raises(TaskError, match="is a folder"):
        load_task(tmp_path)
    path = tmp_path / "binary.py"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(path)


def test_good_file_needs_five_lines(tmp_path):
    task = load_task(write(tmp_path, GOOD))
    assert task.name == "mine"
    assert [c.role for c in task.info.cases] == [CaseRole.CHECK, CaseRole.CHECK, CaseRole.BENCH]
    assert list(task.vendors) == ["torch"]
    assert task.expert() is None
    assert task.naive() is None
    (x,) = task.make_inputs(task.info.cases[0])
    assert x.shape == (4, 31)
    assert torch.equal(task.oracle(task.info.cases[0])[0], torch.relu(x.double()))


def test_same_seed_same_inputs_and_salt_moves_only_fresh_cases(tmp_path):
    task = load_task(write(tmp_path, GOOD))
    fixed, fresh, _ = task.info.cases
    assert fresh.seed == FRESH
    one, two = task.salted("one"), task.salted("two")
    assert one.info.cases[0] == fixed
    assert one.info.cases[1].seed != two.info.cases[1].seed
    assert one.info.cases[1].seed == task.salted("one").info.cases[1].seed >= 0
    assert one.id == task.id != one.info.id
    drawn = [t.make_inputs(t.info.cases[1])[0] for t in (one, two, task)]
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[2], task.make_inputs(fresh)[0])


def test_repeated_cases_get_names_of_their_own(tmp_path):
    task = load_task(write(tmp_path, GOOD + "CASES.insert(0, {'n': 31})\n"))
    names = [c.name for c in task.info.cases]
    assert len(set(names)) == len(names)


def test_id_changes_with_text_and_not_with_place(tmp_path):
    first = load_task(write(tmp_path, GOOD), check=False)
    (tmp_path / "other").mkdir()
    moved = load_task(write(tmp_path / "other", GOOD), check=False)
    changed = load_task(write(tmp_path, GOOD + "# a remark\n"), check=False)
    assert first.id == moved.id != changed.id


def test_tolerance_override_keeps_its_reason(tmp_path):
    task = load_task(write(tmp_path, GOOD + "TOLERANCE = (0.25, 'quantised on purpose')\n"), check=False)
    assert task.info.tolerance.override == 0.25
    assert task.info.tolerance.reason == "quantised on purpose"


def test_missing_kernel_file_is_a_task_error(tmp_path):
    task = load_task(write(tmp_path, GOOD + "NAIVE = 'kernels/none.py'\nEXPERT = 'gone.py'\n"))
    with pytest.raises(TaskError, match=r"none\.py cannot be read"):
        task.naive()
    with pytest.raises(TaskError, match=r"gone\.py cannot be read"):
        task.expert()


def test_kernel_file_with_an_entry(tmp_path):
    write(tmp_path, "def go(x):\n    return x\n", "k.py")
    task = load_task(write(tmp_path, GOOD + "NAIVE = 'k.py:go'\n"))
    kernel = task.naive()
    assert kernel is not None
    assert (kernel.entry, kernel.origin) == ("go", "k.py")


def test_work_is_counted_when_the_file_gives_none(tmp_path):
    text = GOOD.replace("torch.relu(x)", "x @ x.mT").replace("'n': 1 << 20", "'n': 1 << 10")
    task = load_task(write(tmp_path, text))
    work = task.work(task.info.cases[0])
    assert work.flops == 2 * 4 * 4 * 31
    assert work.bytes == 4 * (4 * 31 + 4 * 4)


def test_shipped_tasks_are_found():
    assert {"rms_norm", "matmul_epilogue", "layer_norm", "matmul", "softmax"} <= set(shipped_tasks())


def test_example_of_the_documentation_is_a_task(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    example = page.split("```python\n", 1)[1].split("```", 1)[0]
    task = load_task(write(tmp_path, example, "silu.py"))
    assert task.name == "silu"
    assert len(task.check_cases) == 8


def test_documentation_names_every_field_of_the_format():
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    assert [name for name in sorted(_KNOWN) if f"`{name}" not in page] == []
