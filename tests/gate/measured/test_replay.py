"""What a launcher does on meta tensors, written down and done again in memory of our own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import stand_in
import torch

from klineage.gate.measured import device
from klineage.gate.measured.program import problem
from klineage.gate.measured.record import Recorder
from klineage.gate.measured.replay import Impossible, Replay, place

METADATA = SimpleNamespace(num_ctas=1, num_warps=4, shared=0)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device, "DEVICE", "cpu")


class Launcher:
    """Gives ``k(x, y, n)`` to a launcher; launches go to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __call__(self, x: Any, y: Any, n: Any, kinds: tuple[str, ...] = ("*fp32", "*fp32", "i32"), **more: Any) -> None:
        signature = dict(zip("xyn", kinds, strict=True))
        metadata = SimpleNamespace(**{**vars(METADATA), **more})
        self.recorder.launch("affine", (1, 1, 1), metadata, signature, [x, y, n], "c0", [16, 16, 1])


def record(entry: Callable[..., Any], *inputs: torch.Tensor, on: str = "meta") -> dict[str, Any]:
    given = [x.to(on) if x.is_floating_point() else x for x in inputs]
    recorder = Recorder(given)
    with recorder:
        recorder.finish(entry(Launcher(recorder), *given))
    return recorder.program()


def replayed(program: dict[str, Any], *inputs: torch.Tensor) -> Replay:
    assert problem(program, ["c0"], len(inputs)) == ""
    replay = Replay(stand_in.Loader(), program, {"c0": b""}, place(inputs))
    replay.poison()
    replay.run()
    return replay


X = torch.arange(64, dtype=torch.float32)


def test_an_allocation_and_a_launch():
    def entry(k: Launcher, x: Any) -> Any:
        y = torch.empty_like(x)
        k(x, y, x.numel())
        return y

    replay = replayed(record(entry, X), X)
    assert torch.equal(replay.outputs[0], 2 * X + 1)
    assert replay.broken() == "" and replay.changed([X]) == []


def test_views_with_offsets_reach_the_same_elements():
    def entry(k: Launcher, x: Any) -> Any:
        y = torch.zeros(2, 32, device=x.device)
        k(x[32:], y[1], 32)
        return y, y.t()

    replay = replayed(record(entry, X), X)
    expected = torch.stack([torch.zeros(32), 2 * X[32:] + 1])
    assert torch.equal(replay.outputs[0], expected)
    assert torch.equal(replay.outputs[1], expected.t()) and replay.outputs[1].stride() == (1, 32)


def test_a_view_of_padded_input_memory():
    padded = torch.arange(84, dtype=torch.float32).as_strided((4, 16), (20, 1), 4)

    def entry(k: Launcher, x: Any) -> Any:
        y = torch.empty(16, device=x.device)
        k(x[3], y, 16)
        return y

    inputs = torch.empty(84, device="meta").as_strided((4, 16), (20, 1), 4)
    recorder = Recorder([inputs])
    with recorder:
        recorder.finish(entry(Launcher(recorder), inputs))
    assert torch.equal(replayed(recorder.program(), padded).outputs[0], 2 * padded[3] + 1)


def test_fills_copies_and_sums_of_partial_results():
    def entry(k: Launcher, x: Any) -> Any:
        parts = torch.full((2, 32), 3.0, device=x.device)
        k(x, parts, 32)
        return parts.sum(0), x.clone(), torch.ones_like(x[:4]), parts.sum()

    replay = replayed(record(entry, X), X)
    parts = torch.stack([2 * X[:32] + 1, torch.full((32,), 3.0)])
    for got, expected in zip(replay.outputs, (parts.sum(0), X, torch.ones(4), parts.sum()), strict=True):
        assert torch.equal(got, expected)


def test_small_data_from_the_host_is_carried_along_and_put_back():
    def entry(k: Launcher, x: Any) -> Any:
        y = torch.empty_like(x)
        table = torch.arange(64, dtype=torch.float32)
        k(table, y, 64)
        return y

    replay = replayed(record(entry, X), X)
    (data,) = replay._data
    replay.buffers[data].content().zero_()
    replay.poison()
    replay.run()
    assert torch.equal(replay.outputs[0], 2 * X + 1)


def test_what_is_not_written_stays_poisoned():
    def entry(k: Launcher, x: Any) -> Any:
        y = torch.empty_like(x)
        k(x, y, 63)
        return y

    assert replayed(record(entry, X), X).outputs[0].isnan().tolist() == [False] * 63 + [True]


def test_every_run_starts_anew():
    replay = replayed(record(lambda k, x: (k(x, y := torch.empty_like(x), 64), y)[1], X), X)
    replay.poison()
    assert replay.outputs[0].isnan().all()


@pytest.mark.parametrize(("offset", "said"), [(64, "memory that it allocated"), (-1, "memory that it allocated")])
def test_a_write_into_the_margin_is_seen(offset: int, said: str):
    replay = replayed(record(lambda k, x: (k(x, y := torch.empty_like(x), 64), y)[1], X), X)
    name = next(n for n in replay.buffers if n.startswith("made"))
    address = replay.outputs[0].data_ptr()
    stand_in.at((address, "float32"), 1, offset=offset).fill_(7.0)
    assert replay.broken() == f"it wrote outside {said}", name


def test_a_changed_input_is_seen():
    replay = replayed(record(lambda k, x: (k(x, y := torch.empty_like(x), 64), y)[1], X), X)
    replay.buffers["input0"].content()[17] += 1
    assert replay.changed([X]) == [0]


ARANGE = torch.arange(8)


def computing(what: Callable[[Any], Any]) -> Callable[..., Any]:
    """A launcher that launches on its input and computes the answer with torch."""

    def entry(k: Launcher, x: Any) -> Any:
        k(x, torch.empty_like(x), 64)
        return what(x)

    return entry


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "computes": (computing(lambda x: x * 2), "computes with torch.mul"),
    "matmul": (computing(lambda x: x.view(8, 8) @ x.view(8, 8)), "computes with torch.mm"),
    "sum of an input": (computing(lambda x: x.sum()), "computes with torch.sum"),
    "softmax": (computing(lambda x: torch.softmax(x, 0)), "computes with torch._softmax"),
    "returns a number": (computing(len), "returns what is not a plain tensor"),
    "a cluster": (lambda k, x: k(x, torch.empty_like(x), 64, num_ctas=2), "in clusters"),
    "scratch memory": (lambda k, x: k(x, torch.empty_like(x), 64, global_scratch_size=128), "scratch memory"),
    "a descriptor": (lambda k, x: k(x, x, 64, kinds=("tensordesc<fp32[8]>", "*fp32", "i32")), "is a tensordesc"),
    "an odd scalar": (lambda k, x: k(x, x, "n"), "argument n of affine is a i32"),
}


def test_a_sum_of_a_copy_of_an_input_is_no_sum_of_partial_results():
    def entry(k: Launcher, x: Any) -> Any:
        y = x.clone()
        k(x, y, 0)
        return y.sum()

    assert "computes with torch.sum" in record(entry, X)["impossible"]


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_written_down_is_said(what: str):
    entry, reason = REFUSED[what]
    assert reason in record(entry, X)["impossible"]


def test_host_data_beside_inputs_with_other_values_is_not_trusted():
    def entry(k: Launcher, x: Any, index: Any) -> Any:
        y = torch.empty_like(x)
        k(index.float(), y, 8)
        return y

    assert "where nothing was written down" in record(entry, X, ARANGE)["impossible"]


def test_an_address_that_is_aligned_otherwise_makes_replay_impossible():
    program = record(lambda k, x: (k(x[1:], y := torch.empty_like(x), 63), y)[1], X)
    with pytest.raises(Impossible, match="aligned otherwise"):
        Replay(stand_in.Loader(), program, {"c0": b""}, place([X]))


def test_a_view_beyond_its_memory_makes_replay_impossible():
    program = record(lambda k, x: (k(x, y := torch.empty_like(x), 64), y)[1], X)
    with pytest.raises(Impossible, match="leaves its memory"):
        Replay(stand_in.Loader(), program, {"c0": b""}, place([X[:32].clone()]))


class Exact(stand_in.Loader):
    """A driver that says how many parameters kernels have."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.count = parameters

    def parameters(self, function: str) -> int | None:
        return self.count


@pytest.mark.parametrize(("count", "fits"), [(2, False), (3, True), (4, True), (5, True), (6, False)])
def test_scratch_pointers_that_newer_tritons_append_are_told_from_a_mismatch(count: int, fits: bool):
    program = record(lambda k, x: (k(x, y := torch.empty_like(x), 64), y)[1], X)
    if fits:
        Replay(Exact(count), program, {"c0": b""}, place([X]))
    else:
        with pytest.raises(Impossible, match=f"takes {count} parameters, 3 are known"):
            Replay(Exact(count), program, {"c0": b""}, place([X]))
