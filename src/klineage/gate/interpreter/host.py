# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""What a candidate's host code meets: fresh memory that is poisoned, and a record of the torch operators it runs."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from .memory import tensors_in
from .provenance import Ledger

POISON_BYTE = 0xA5
_FP8_NAN_BYTE = {torch.float8_e4m3fn: 0x7F, torch.float8_e5m2: 0x7F, torch.float8_e4m3fnuz: 0x80,
                 torch.float8_e5m2fnuz: 0x80}  # fmt: skip
_UNFILLED = frozenset(
    {
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_",
    }
)  # fmt: skip
_FREE = frozenset(
    {
        "size", "stride", "dim", "numel", "nelement", "data_ptr", "element_size", "storage_offset", "is_contiguous",
        "untyped_storage", "is_floating_point", "is_complex", "get_device", "__get__", "ndimension", "__len__",
        "__repr__", "__format__", "__hash__", "requires_grad_", "detach", "is_signed", "storage", "_is_view",
        "broadcast_shapes", "is_tensor", "is_same_size", "__set__", "type", "finfo", "iinfo", "promote_types",
        "result_type", "can_cast", "record_stream", "has_names", "is_pinned", "retain_grad", "__bool__",
    }
)  # fmt: skip
_MOVES = frozenset(  # creation and movement: nothing is computed
    {
        "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "arange",
        "tensor", "as_tensor", "zero_", "fill_", "copy_", "clone", "contiguous", "to", "half", "float", "bfloat16",
        "double", "int", "long", "cpu", "cuda", "reshape", "item", "tolist", "cat", "stack", "repeat_interleave",
        "__setitem__", "__getitem__", "set_", "index_select", "flatten", "pad", "view_as", "type_as", "numpy",
        "repeat", "eye", "linspace",
    }
)  # fmt: skip
_WHOLE_ANSWERS = frozenset(
    {
        "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "linear", "tensordot", "dot",
        "mv", "softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm",
        "scaled_dot_product_attention", "cross_entropy", "nll_loss", "conv1d", "conv2d", "conv3d", "gelu", "silu",
        "sort", "topk", "cumsum", "logsumexp",
    }
)  # fmt: skip

_SUMMARIES = frozenset({"sum", "mean", "amax", "amin", "max", "min", "any", "all", "argmax", "argmin"})
_READS = frozenset({"numpy", "tolist", "item", "__float__", "__array__", "__dlpack__", "__int__", "equal", "allclose"})
_FROM_HOST = frozenset({"tensor", "as_tensor", "asarray", "frombuffer", "from_numpy", "from_file", "from_dlpack"})
_FEW = 64  # numbers that a launcher may read from tensors or write into them itself


def poison(tensor: torch.Tensor) -> None:
    """Fill a fresh tensor: NaN where the type has one, bytes 0xA5 otherwise."""
    if tensor.numel() == 0 or tensor.is_meta:
        return
    storage = tensor.untyped_storage()
    everything = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))
    if tensor.dtype in _FP8_NAN_BYTE:
        everything.fill_(_FP8_NAN_BYTE[tensor.dtype])
    elif tensor.is_floating_point() or tensor.is_complex():
        whole = storage.nbytes() // tensor.element_size()
        torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(storage, 0, (whole,), (1,)).fill_(float("nan"))
    else:
        everything.fill_(POISON_BYTE)


def zero_integers(tensor: torch.Tensor) -> None:
    """Leave real numbers untouched (their pages are never needed) and zero the rest: indices must stay valid."""
    if not tensor.is_floating_point() and not tensor.is_complex():
        tensor.zero_()


class HostWatch(TorchFunctionMode):
    """Poisons allocations (or, for traces, zeroes integers), remembers tensors, and records the operators that compute.

    Views, allocations and questions about a tensor are not recorded. What torch derives from the inputs is followed,
    so that computing on an input or on a copy of it is told from work on a kernel's own scratch.
    """

    def __init__(self, poison_allocations: bool, ledger: Ledger | None = None) -> None:
        super().__init__()
        self._prepare = poison if poison_allocations else zero_integers
        self.calls: Counter[str] = Counter()
        self.largest: dict[str, int] = {}
        self._seen: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        self._derived: dict[int, Any] = {}  # address -> storage, kept alive so that no address is used again
        self._made: dict[int, Any] = {}  # the same of what kernels wrote
        self._suspicious: Counter[str] = Counter()
        self.unfilled: set[int] = set()  # addresses of storages that were allocated and not filled by torch
        self.moved: list[
            tuple[str, int, int]
        ] = []  # each call that computes or copies: name, bytes read, bytes written
        self._read = 0  # real numbers that the host took out of tensors
        self.ledger = ledger

    def take_inputs(self, inputs: list[torch.Tensor]) -> None:
        """Name the tensors whose content the kernels, not torch, must work on."""
        for tensor in inputs:
            self.remember(tensor)
            self._follow(tensor)
        if self.ledger:
            self.ledger.note(t.untyped_storage() for t in inputs)

    def before_launch(self, arguments: dict[str, Any]) -> None:
        """Check the tensors that a launch is given."""
        if self.ledger:
            for name, value in arguments.items():
                self.ledger.check((t.untyped_storage() for t in tensors_in((value,))), f"argument {name}")

    def after_launch(self, storages: list[Any]) -> None:
        """Take over what a launch left in the storages it could reach."""
        if self.ledger:
            self._made.update({storage.data_ptr(): storage for storage in self.ledger.note(storages)})

    def note_launch(self, arguments: Iterable[Any]) -> None:
        """Take the tensors of a launch for what kernels made, where memory itself cannot be compared."""
        for tensor in tensors_in(arguments):
            self._made[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()

    def check_outputs(self, outputs: list[torch.Tensor]) -> None:
        """Check the tensors that the entry returned."""
        if self.ledger:
            for number, tensor in enumerate(outputs):
                self.ledger.check([tensor.untyped_storage()], f"output {number}")

    def _follow(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._derived[storage.data_ptr()] = storage

    def suspicious(self) -> list[str]:
        """Operators that computed with the inputs or with what kernels wrote, that are the whole answer to some task,
        or that brought numbers from the host; most frequent first."""
        return [name for name, _ in self._suspicious.most_common()]

    def remember(self, tensor: torch.Tensor) -> None:
        """Make a tensor's storage reachable for kernels that follow a pointer in memory."""
        self._seen[id(tensor)] = tensor

    def known(self) -> Iterator[torch.Tensor]:
        """All tensors seen that are still alive."""
        return iter(list(self._seen.values()))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _FREE:
            return func(*args, **kwargs)
        inputs = [a for a in _flat((*args, *kwargs.values())) if isinstance(a, torch.Tensor)]
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            versions = [t._version for t in inputs]
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            outputs = [t for t in _flat((result,)) if isinstance(t, torch.Tensor)]
            for tensor in outputs:
                self.remember(tensor)
            if name in _UNFILLED:
                for tensor in outputs:
                    self._prepare(tensor)
                    self.unfilled.add(tensor.untyped_storage().data_ptr())
            changed = [t for t, v in zip(inputs, versions, strict=True) if t._version != v]
            if name not in _UNFILLED and self._computed(inputs, versions, outputs, result):
                self._record(func, name, inputs, outputs)
                written = [*self._new(inputs, outputs), *changed]
                read = [t for t in inputs if not any(t is c for c in changed)]
                self.moved.append((_title(func, name), _bytes(read), _bytes(written)))
            self.unfilled -= {t.untyped_storage().data_ptr() for t in changed}
            if self.ledger:
                self.ledger.note(t.untyped_storage() for t in (*self._new(inputs, outputs), *changed))
        return result

    @staticmethod
    def _new(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        held = {t.untyped_storage().data_ptr() for t in inputs}
        return [t for t in outputs if _has_bytes(t) and t.untyped_storage().data_ptr() not in held]

    @staticmethod
    def _computed(inputs: list[torch.Tensor], versions: list[int], outputs: list[torch.Tensor], result: Any) -> bool:
        if any(t._version != v for t, v in zip(inputs, versions, strict=True)):
            return True  # an operation in place
        if not outputs:  # e.g. torch.equal, .item()
            return bool(inputs) and result is not None
        held = {t.untyped_storage().data_ptr() for t in inputs}
        return any(t.untyped_storage().data_ptr() not in held for t in outputs if t.numel())

    def _record(
        self, func: Callable[..., Any], name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> None:
        title = _title(func, name)
        self.calls[title] += 1
        elements = max((t.numel() for t in (*inputs, *outputs)), default=0)
        self.largest[title] = max(elements, self.largest.get(title, 0))
        # integer inputs (targets, lengths, tables) are what launchers plan with: only real numbers are followed
        real = [t for t in inputs if t.is_floating_point()]
        derived = any(t.untyped_storage().data_ptr() in self._derived for t in real)
        made = any(t.untyped_storage().data_ptr() in self._made for t in real)
        if derived:
            for tensor in outputs:
                self._follow(tensor)
        if made and name in _MOVES:
            self._made.update({t.untyped_storage().data_ptr(): t.untyped_storage() for t in outputs})
        if self._suspect(name, derived, made, real, outputs):
            self._suspicious[title] += 1

    def _suspect(
        self, name: str, derived: bool, made: bool, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> bool:
        read = max((t.numel() for t in inputs), default=0)
        if name in _WHOLE_ANSWERS:
            return True
        if name in _FROM_HOST:
            return any(t.is_floating_point() and t.numel() > _FEW for t in outputs)
        if name in _READS:
            self._read += read if derived or made else 0
            return self._read > _FEW
        if derived and name not in _MOVES and read > 1:
            return True
        if not made or name in _MOVES or read <= 1:
            return False
        # partial results of kernels may be summed up; anything else on them is the kernels' own work
        return name not in _SUMMARIES or any(2 * t.numel() > read for t in outputs)

    def operators(self) -> list[dict[str, Any]]:
        """The record, by name: {"op", "calls", "elements"}."""
        return [{"op": n, "calls": c, "elements": self.largest[n]} for n, c in sorted(self.calls.items())]


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _has_bytes(tensor: torch.Tensor) -> bool:
    return not tensor.is_meta and tensor.layout is torch.strided


def _title(func: Callable[..., Any], name: str) -> str:
    """How people write the function: torch's own table of names gives the first of several aliases."""
    if getattr(torch, name, None) is func:
        return f"torch.{name}"
    if getattr(torch.Tensor, name, None) is func:
        return f"torch.Tensor.{name}"
    return resolve_name(func) or name or repr(func)


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        else:
            yield value
