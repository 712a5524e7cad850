# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Payloads as one framed message: a JSON header and raw buffers. Nothing is ever unpickled.

A payload is a dict of JSON values, ``bytes``, numpy arrays and torch tensors (any dtype torch can view as bytes,
bfloat16 and fp8 among them; shape and stride are kept). A frame is ``MAGIC``, the header's length (8 bytes, little
endian), the header, then the buffers one after another. The reader trusts nothing: sizes are checked against a
limit before anything is allocated, and every malformed frame is a WireError.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

Payload = dict[str, Any]
Buffer = bytes | bytearray | memoryview

MAGIC = b"KLWIRE1\n"
MAX_HEADER_BYTES = 64 << 20
DEFAULT_MAX_BYTES = 2 << 30
_PREFIX_BYTES = len(MAGIC) + 8
_TAG = "$"
_MAX_DEPTH = 64
TENSOR_DTYPES = frozenset({
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
})  # fmt: skip


class WireError(ValueError):
    """A frame that breaks the format or its limits; says nothing about who sent it."""


def encode(payload: Payload) -> list[Buffer]:
    """The frame of a payload as chunks to send in order.

    Raises TypeError for a value the format cannot hold.
    """
    buffers: list[Buffer] = []
    tree = _pack(payload, buffers, 0)
    header = json.dumps({"tree": tree, "sizes": [len(b) for b in buffers]}).encode()
    return [MAGIC + len(header).to_bytes(8, "little"), header, *(b for b in buffers if len(b))]


def decode(data: Buffer, max_bytes: int = DEFAULT_MAX_BYTES) -> Payload:
    """The payload of one whole frame held in memory. Raises WireError."""
    view = memoryview(data).cast("B")
    if len(view) < _PREFIX_BYTES:
        raise WireError("the frame is cut short")
    end = _PREFIX_BYTES + _header_bytes(view[:_PREFIX_BYTES])
    tree, sizes = _parse_header(view[_PREFIX_BYTES:end], max_bytes)
    if len(view) != end + sum(sizes):
        raise WireError("the frame's length is not what its header says")
    buffers: list[bytearray] = []
    for size in sizes:
        buffers.append(bytearray(view[end : end + size]))
        end += size
    return _unpack_root(tree, buffers, max_bytes)


def send(connection: socket.socket, payload: Payload) -> None:
    """Send one frame over a blocking socket."""
    for chunk in encode(payload):
        connection.sendall(chunk)


def receive(connection: socket.socket, max_bytes: int = DEFAULT_MAX_BYTES) -> Payload:
    """Read one frame from a blocking socket. Raises WireError, also when the peer closes early."""
    reader = FrameReader(max_bytes)
    while not reader.complete:
        if not reader.read_from(connection):
            raise WireError("the connection closed before the frame ended")
    return reader.payload()


class FrameReader:
    """Reads one frame piece by piece; usable with blocking and non-blocking sockets."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._tree: Any = None
        self._stage = 0  # 0 prefix, 1 header, 2 buffers
        self._current = bytearray(_PREFIX_BYTES)
        self._filled = 0
        self._sizes: list[int] = []
        self._buffers: list[bytearray] = []

    @property
    def complete(self) -> bool:
        """Whether the whole frame has arrived."""
        return self._stage == 2 and len(self._buffers) == len(self._sizes)

    @property
    def started(self) -> bool:
        """Whether any byte has arrived."""
        return self._stage > 0 or self._filled > 0

    def read_from(self, connection: socket.socket) -> bool:
        """Read what one call gives. False at end of stream. Raises WireError, BlockingIOError."""
        got = connection.recv_into(memoryview(self._current)[self._filled :])
        if got == 0:
            return False
        self._filled += got
        if self._filled == len(self._current):
            self._advance()
        return True

    def payload(self) -> Payload:
        """The decoded payload. Raises WireError when it is malformed or not complete."""
        if not self.complete:
            raise WireError("the frame is cut short")
        return _unpack_root(self._tree, self._buffers, self._max_bytes)

    def _advance(self) -> None:
        if self._stage == 0:
            self._current = bytearray(_header_bytes(self._current))
            self._stage = 1
        elif self._stage == 1:
            self._tree, self._sizes = _parse_header(self._current, self._max_bytes)
            self._stage = 2
            self._next_buffer()
        else:
            self._buffers.append(self._current)
            self._next_buffer()
        self._filled = 0

    def _next_buffer(self) -> None:
        while len(self._buffers) < len(self._sizes) and self._sizes[len(self._buffers)] == 0:
            self._buffers.append(bytearray())
        if not self.complete:
            self._current = bytearray(self._sizes[len(self._buffers)])


def _header_bytes(prefix: Buffer) -> int:
    if bytes(prefix[: len(MAGIC)]) != MAGIC:
        raise WireError("the frame does not begin with the format's mark")
    size = int.from_bytes(prefix[len(MAGIC) :], "little")
    if not 2 <= size <= MAX_HEADER_BYTES:
        raise WireError(f"a header of {size} bytes is refused")
    return size


def _parse_header(header: Buffer, max_bytes: int) -> tuple[Any, list[int]]:
    try:
        parsed = json.loads(bytes(header))
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON: {error}") from None
    if not isinstance(parsed, dict) or set(cast(dict[str, Any], parsed)) != {"tree", "sizes"}:
        raise WireError("the header lacks its two fields")
    sizes = cast(dict[str, Any], parsed)["sizes"]
    if not isinstance(sizes, list) or not all(_is_size(s) for s in cast(list[Any], sizes)):
        raise WireError("buffer sizes are not whole numbers")
    total = sum(cast(list[int], sizes))
    if total > max_bytes:
        raise WireError(f"{total} bytes of buffers exceed the limit of {max_bytes}")
    return cast(dict[str, Any], parsed)["tree"], cast(list[int], sizes)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48


def _pack(value: Any, buffers: list[Buffer], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise TypeError("the payload is nested too deeply")
    if value is None or isinstance(value, bool | str | int | float):
        # numpy scalars and enum members pass as their plain value
        return value if type(value) in (bool, str, int, float, type(None)) else _plain(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {_TAG: "bytes", "buffer": _add(buffers, memoryview(value).cast("B"))}
    if isinstance(value, dict):
        items = {str(k): _pack(v, buffers, depth + 1) for k, v in cast(dict[Any, Any], value).items()}
        return {_TAG: "dict", "items": items} if _TAG in items else items
    if isinstance(value, tuple):
        return {_TAG: "tuple", "items": _pack_all(cast(tuple[Any, ...], value), buffers, depth)}
    if isinstance(value, list):
        return _pack_all(cast(list[Any], value), buffers, depth)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return _pack_array(cast("np.ndarray[Any, Any]", value), buffers)
    if hasattr(value, "untyped_storage"):
        return _pack_tensor(value, buffers)
    raise TypeError(f"a payload cannot hold a {type(value).__name__}")


def _plain(value: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None


def _pack_all(values: Iterable[Any], buffers: list[Buffer], depth: int) -> list[Any]:
    return [_pack(v, buffers, depth + 1) for v in values]


def _add(buffers: list[Buffer], data: Buffer) -> int:
    buffers.append(data)
    return len(buffers) - 1


def _pack_array(array: np.ndarray[Any, Any], buffers: list[Buffer]) -> Any:
    if array.dtype.hasobject or array.dtype.names:
        raise TypeError(f"a payload cannot hold an array of {array.dtype}")
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return {
        _TAG: "ndarray",
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "buffer": _add(buffers, memoryview(cast(Any, flat)).cast("B")),
    }


def _span(shape: Iterable[int], stride: Iterable[int]) -> int:
    """Elements from the first to the last a strided view touches; 0 when it is empty."""
    pairs = list(zip(shape, stride, strict=True))
    return 0 if any(n == 0 for n, _ in pairs) else 1 + sum((n - 1) * s for n, s in pairs)


def _pack_tensor(tensor: Any, buffers: list[Buffer]) -> Any:
    import torch

    plain: torch.Tensor = tensor.detach()
    dtype = str(plain.dtype).removeprefix("torch.")
    if dtype not in TENSOR_DTYPES or plain.layout is not torch.strided or plain.device.type == "meta":
        raise TypeError(f"a payload cannot hold a {dtype} tensor on {plain.device.type}")
    plain = plain.cpu().resolve_conj().resolve_neg()
    shape, stride = list(plain.shape), list(plain.stride())
    span = _span(shape, stride)
    flat = plain.as_strided((span,), (1,)).contiguous()
    raw = flat.view(torch.uint8).numpy() if span else np.empty(0, np.uint8)
    entry = {"dtype": dtype, "shape": shape, "stride": stride}
    return {_TAG: "tensor", **entry, "buffer": _add(buffers, memoryview(cast(Any, raw)).cast("B"))}


def _unpack_root(tree: Any, buffers: list[bytearray], max_bytes: int) -> Payload:
    try:
        value = _unpack(tree, buffers, max_bytes)
    except RecursionError:
        raise WireError("the payload is nested too deeply") from None
    if not isinstance(value, dict):
        raise WireError("the payload is not a dict")
    return cast(Payload, value)


def _unpack(tree: Any, buffers: list[bytearray], limit: int) -> Any:
    if isinstance(tree, list):
        return [_unpack(v, buffers, limit) for v in cast(list[Any], tree)]
    if not isinstance(tree, dict):
        return tree
    node = cast(dict[str, Any], tree)
    if _TAG not in node:
        return {k: _unpack(v, buffers, limit) for k, v in node.items()}
    try:
        return _unpack_tagged(node, buffers, limit)
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"malformed {node[_TAG]!r} entry: {type(error).__name__}: {error}") from None


def _unpack_tagged(node: dict[str, Any], buffers: list[bytearray], limit: int) -> Any:
    tag = node[_TAG]
    if tag == "dict":
        return {k: _unpack(v, buffers, limit) for k, v in node["items"].items()}
    if tag == "tuple":
        return tuple(_unpack(v, buffers, limit) for v in node["items"])
    if tag not in ("bytes", "ndarray", "tensor") or not _is_size(node["buffer"]):
        raise WireError(f"unknown entry {tag!r}")
    data = buffers[node["buffer"]]
    if tag == "bytes":
        return bytes(data)
    shape = node["shape"]
    if not all(_is_size(n) for n in shape) or len(shape) > _MAX_DEPTH or math.prod(shape) > limit:
        raise WireError("a shape that is refused")
    if tag == "tensor":
        return _unpack_tensor(node, data, limit)
    dtype = np.dtype(node["dtype"])
    if dtype.hasobject or dtype.names:
        raise WireError(f"an array of {dtype} is refused")
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _unpack_tensor(node: dict[str, Any], data: bytearray, limit: int) -> Any:
    import torch

    shape, stride, name = node["shape"], node["stride"], node["dtype"]
    if name not in TENSOR_DTYPES or not all(_is_size(s) for s in stride) or len(stride) != len(shape):
        raise WireError("a tensor of an unknown kind")
    dtype: torch.dtype = getattr(torch, name)
    # an expanded view of few bytes may claim any number of elements: the claim counts against the limit
    if math.prod(shape) * dtype.itemsize > limit or _span(shape, stride) * dtype.itemsize != len(data):
        raise WireError("a tensor's bytes do not match its shape")
    if not data:
        return torch.empty_strided(shape, stride, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).as_strided(shape, stride)
