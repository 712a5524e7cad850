# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportIncompatibleMethodOverride=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false
"""What a launcher does, written down while it runs without a device: allocations, copies, fills, launches, outputs.

The result (a *program*) is plain JSON with buffers. A trusted worker replays it on a GPU, so that nothing of the
candidate's Python runs where its kernels are checked and timed. What cannot be written down (torch operators that
compute, tensor descriptors, clusters, unusual arguments) makes the program impossible, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ALLOCATE = frozenset({"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"})
FILL = frozenset({"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full",
                  "fill_", "zero_"})  # fmt: skip
COPY = frozenset({"clone", "copy_", "_to_copy"})
SUMMARIES = frozenset({"sum", "mean", "amax", "amin"})
SCALARS = frozenset({"i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", "fp32", "fp64"})
_MOST_DATA_BYTES = 16 << 20


class Recorder(TorchDispatchMode):
    """Writes down one call of an entry. ``impossible`` says why there is no program, or is ""."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []
        self.impossible = ""
        self.outputs: list[dict[str, Any]] = []
        self._known: dict[int, str] = {}
        self._kept: list[Any] = []  # storages stay alive, so that no address is used twice
        self._written: set[str] = set()  # storages that a launch could write
        self._given: set[str] = set()  # storages that hold values of inputs
        self._host_inputs = any(isinstance(v, torch.Tensor) and not v.is_meta for v in inputs)
        for index, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                self._name(value, f"input{index}")
                self._given.add(f"input{index}")

    def program(self) -> dict[str, Any]:
        """The program, or only why there is none."""
        if self.impossible:
            return {"impossible": self.impossible}
        return {"steps": self.steps, "outputs": self.outputs, "impossible": ""}

    def finish(self, result: Any) -> None:
        """Note what the entry returned."""
        for value in result if isinstance(result, tuple | list) else (result,):
            if type(value) is not torch.Tensor:
                self._refuse("it returns what is not a plain tensor")
                return
            self.outputs.append(self._view(value))

    def launch(self, kernel: str, grid: Sequence[int], metadata: Any, signature: Any, arguments: Sequence[Any],
               cubin: str, divisible: Sequence[int]) -> None:  # fmt: skip
        """Note a launch; ``signature`` maps names to Triton's types in the order of ``arguments``."""
        params: list[dict[str, Any]] = []
        kinds = {name: str(kind) for name, kind in signature.items()}
        for (name, kind), value, by in zip(kinds.items(), arguments, divisible, strict=False):
            if kind == "constexpr":
                continue
            if isinstance(value, torch.Tensor) and kind.startswith("*"):
                view = self._view(value)
                self._written.add(view["storage"])
                params.append({"kind": "ptr", "view": view, "divisible": by})
            elif kind in SCALARS and isinstance(value, bool | int | float):
                params.append({"kind": kind, "value": value})
            else:
                self._refuse(f"argument {name} of {kernel} is a {kind}")
                return
        if metadata.num_ctas != 1 or getattr(metadata, "launch_cooperative_grid", False):
            self._refuse(f"{kernel} is launched in clusters or as a cooperative grid")
        if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "profile_scratch_size", 0):
            self._refuse(f"{kernel} needs scratch memory")
        self.steps.append({
            "op": "launch", "kernel": kernel, "grid": list(grid), "threads": metadata.num_warps * 32,
            "smem": metadata.shared, "cubin": cubin, "params": params,
        })  # fmt: skip

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and note it when it makes or changes data."""
        result = func(*args, **(kwargs or {}))
        if not self.impossible:
            self._note(func, args, kwargs or {}, result)
        return result

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        name = func._schema.name.removeprefix("aten::")
        inputs = [t for t in _flat((args, tuple(kwargs.values()))) if isinstance(t, torch.Tensor)]
        outputs = [t for t in _flat(result) if isinstance(t, torch.Tensor)]
        if name in ("fill_", "zero_", "copy_"):
            self._in_place(name, args)
        elif all(not t.is_meta for t in (*inputs, *outputs)):
            return  # small data on the host: carried along when a kernel is given it
        elif outputs and all(self._id(t) in self._known for t in outputs) and not func._schema.is_mutable:
            return  # a view
        elif name in ALLOCATE:
            self._name(outputs[0], self._fresh())
            self.steps.append({"op": "alloc", **self._size(outputs[0])})
        elif name in FILL and len(outputs) == 1:
            self._name(outputs[0], self._fresh())
            value = 1 if "ones" in name else _value(args, kwargs) if "full" in name else 0
            if not isinstance(value, bool | int | float):
                self._refuse(f"torch.{name} with a value that is not a number")
                return
            self.steps.append({"op": "alloc", **self._size(outputs[0])})
            self.steps.append({"op": "fill", "view": self._view(outputs[0]), "value": value})
        elif name in COPY and len(outputs) == 1:
            self._name(outputs[0], self._fresh())
            self.steps.append({"op": "alloc", **self._size(outputs[0])})
            self._copy(outputs[0], inputs[0])
        elif name in SUMMARIES and len(outputs) == 1 and self._partial(inputs, outputs[0]):
            self._name(outputs[0], self._fresh())
            self.steps.append({"op": "alloc", **self._size(outputs[0])})
            view = self._view(outputs[0])
            self.steps.append({
                "op": "reduce", "how": name, "view": view, "source": self._view(inputs[0]),
                "dims": _dims(args, kwargs, inputs[0].dim()), "keep": inputs[0].dim() == outputs[0].dim(),
            })  # fmt: skip
        else:
            self._refuse(f"it computes with torch.{name.rstrip('_')}")

    def _partial(self, inputs: list[torch.Tensor], output: torch.Tensor) -> bool:
        """Whether partial results of kernels are summed up: anything else is the kernels' own work."""
        return (
            len(inputs) == 1
            and self._known.get(self._id(inputs[0])) in self._written - self._given
            and 2 * output.numel() <= inputs[0].numel()
        )

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        step: dict[str, Any] = {"op": "copy", "view": self._view(target), "source": self._view(source)}
        if step["source"]["storage"] in self._given:
            self._given.add(step["view"]["storage"])
        self.steps.append(step)

    def _in_place(self, name: str, args: tuple[Any, ...]) -> None:
        target = args[0]
        if not target.is_meta and not any(isinstance(a, torch.Tensor) and a.is_meta for a in args):
            return
        if name == "copy_":
            self._copy(target, args[1])
        elif name == "zero_" or isinstance(args[1], bool | int | float):
            value = 0 if name == "zero_" else args[1]
            self.steps.append({"op": "fill", "view": self._view(target), "value": value})
        else:
            self._refuse(f"torch.{name} with a tensor")

    def _view(self, tensor: torch.Tensor) -> dict[str, Any]:
        key = self._id(tensor)
        if key not in self._known:
            # integer inputs hold other values here than the case's: what the host makes of them is not to be trusted
            if tensor.is_meta or self._host_inputs or tensor.untyped_storage().nbytes() > _MOST_DATA_BYTES:
                self._refuse("a tensor comes from where nothing was written down")
                return {"storage": "", "shape": [], "stride": [], "offset": 0, "dtype": "uint8"}
            name = self._fresh()
            self._name(tensor, name)
            held = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            self.steps.append({"op": "data", "storage": name, "data": held.clone()})
        return {
            "storage": self._known[key],
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(),
            "dtype": str(tensor.dtype).removeprefix("torch."),
        }

    def _size(self, tensor: torch.Tensor) -> dict[str, Any]:
        return {"storage": self._known[self._id(tensor)], "bytes": tensor.untyped_storage().nbytes(),
                "dtype": str(tensor.dtype).removeprefix("torch.")}  # fmt: skip

    def _name(self, tensor: torch.Tensor, name: str) -> None:
        self._known[self._id(tensor)] = name
        self._kept.append(tensor.untyped_storage())

    def _fresh(self) -> str:
        return f"made{len(self._kept)}"

    @staticmethod
    def _id(tensor: torch.Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def _refuse(self, why: str) -> None:
        self.impossible = self.impossible or why


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]


def _value(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return kwargs.get("fill_value", args[-1] if args else None)


def _dims(args: tuple[Any, ...], kwargs: dict[str, Any], rank: int) -> list[int]:
    given = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if given is None or given == []:
        return list(range(rank))
    return [int(d) % rank for d in (given if isinstance(given, tuple | list) else (given,))]
