"""The wire format: what it refuses, then what it carries."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import numpy as np
import pytest
import torch

from klineage.gate import wire


def frame(header: Any, *buffers: bytes) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return wire.MAGIC + len(raw).to_bytes(8, "little") + raw + b"".join(buffers)


def entry(**fields: Any) -> dict[str, Any]:
    return {"tree": {"x": {"$": "tensor", "buffer": 0, **fields}}, "sizes": [4]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"KLWIRE1",
        frame({"tree": {}, "sizes": []})[:-1],
        frame({"tree": {}, "sizes": []}) + b"x",
        frame(b"[" * 100_000),
        frame(b'{"sizes": [], "tree": {"x": ' + b"[" * 900 + b"]" * 900 + b"}}"),
        frame({"tree": {}}),
        frame({"tree": [], "sizes": []}),
        frame({"tree": {}, "sizes": [-1]}),
        frame({"tree": {}, "sizes": [True]}),
        frame({"tree": {}, "sizes": [1 << 40]}),
        frame({"tree": {"x": {"$": "pickle", "buffer": 0}}, "sizes": [1]}, b"x"),
        frame({"tree": {"x": {"$": "bytes", "buffer": 3}}, "sizes": [1]}, b"x"),
        frame({"tree": {"x": {"$": "bytes"}}, "sizes": [1]}, b"x"),
        frame({"tree": {"x": {"$": "dict", "items": 3}}, "sizes": []}),
        frame({"tree": {"x": {"$": "ndarray", "dtype": "O", "shape": [1], "buffer": 0}}, "sizes": [8]}, b"x" * 8),
        frame({"tree": {"x": {"$": "ndarray", "dtype": "<f4", "shape": [2], "buffer": 0}}, "sizes": [4]}, b"x" * 4),
        frame(entry(dtype="float32", shape=[2], stride=[1]), b"x" * 4),
        frame(entry(dtype="float32", shape=[1 << 40], stride=[0]), b"x" * 4),
        frame(entry(dtype="float32", shape=[1], stride=[-1]), b"x" * 4),
        frame(entry(dtype="__class__", shape=[1], stride=[1]), b"x" * 4),
        frame(entry(dtype="float32", shape=[1], stride=[1, 1]), b"x" * 4),
        frame(entry(dtype="float32", shape=[], stride=None), b"x" * 4),
    ],
)  # fmt: skip
def test_malformed_frames_are_refused(data: bytes):
    with pytest.raises(wire.WireError):
        wire.decode(data, max_bytes=1 << 20)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, np.array([object()]), torch.empty(2, device="meta"), torch.eye(2).to_sparse(), 1j],
    ids=["object", "set", "object array", "meta tensor", "sparse tensor", "complex"],
)
def test_values_that_cannot_travel_are_refused(value: Any):
    with pytest.raises(TypeError):
        wire.encode({"x": value})


def round_trip(value: Any) -> Any:
    return wire.decode(b"".join(wire.encode({"x": value})))["x"]


@pytest.mark.parametrize(
    "value",
    [None, True, 3, -2.5, "text", b"raw\0", [], [1, [2, None]], (1, (2,)), {}, {"$": "bytes"}, {"a": {"b": (b"c",)}}],
    ids=repr,
)
def test_plain_values(value: Any):
    back = round_trip(value)
    assert back == value
    assert type(back) is type(value)


def test_special_floats():
    assert str(round_trip([float("nan"), float("inf"), -float("inf")])) == "[nan, inf, -inf]"


@pytest.mark.parametrize("name", sorted(wire.TENSOR_DTYPES))
def test_every_tensor_type_keeps_its_bits(name: str):
    dtype = getattr(torch, name)
    tensor = torch.randint(0, 2, (4, 3)).to(torch.float32).to(dtype)
    back = round_trip(tensor)
    assert (back.dtype, back.shape, back.stride()) == (dtype, tensor.shape, tensor.stride())
    assert torch.equal(back.contiguous().view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(6, 4).t(),
        torch.randn(6, 8)[:, ::2],
        torch.randn(3, 1).expand(3, 5),
        torch.tensor(2.0),
        torch.empty(0, 4),
        torch.randn(10)[3:],
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "every other column", "expanded", "scalar", "empty", "offset", "channels last"],
)
def test_layouts_are_kept(tensor: torch.Tensor):
    back = round_trip(tensor)
    assert torch.equal(back, tensor)
    assert back.stride() == tensor.stride()


def test_arrays():
    for array in (np.arange(6).reshape(2, 3), np.array(1.5, np.float32), np.zeros((0, 2)), np.eye(3)[:, ::2]):
        back = round_trip(array)
        assert back.dtype == array.dtype
        assert np.array_equal(back, array)


def test_a_frame_may_arrive_in_pieces():
    left, right = socket.socketpair()
    sent = {"a": torch.arange(100_000), "b": b"", "c": b"end"}
    whole = b"".join(wire.encode(sent))

    def trickle() -> None:
        for start in range(0, len(whole), 7919):
            left.sendall(whole[start : start + 7919])
        left.close()

    thread = threading.Thread(target=trickle)
    thread.start()
    back = wire.receive(right)
    thread.join()
    assert torch.equal(back["a"], sent["a"])
    assert (back["b"], back["c"]) == (b"", b"end")


def test_a_peer_that_closes_early_is_an_error():
    left, right = socket.socketpair()
    left.sendall(wire.MAGIC)
    left.close()
    with pytest.raises(wire.WireError, match="closed"):
        wire.receive(right)
