"""Helpers for task files: tensors of a case, and the standard list of cases.

A case is a dict. ``name``, ``role``, ``seed`` and ``fresh`` are the task's; everything else is a parameter that
``make_inputs`` reads. Four parameters have a meaning here: ``dtype``, ``layout``, ``values`` and ``scale``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

from ..errors import TaskError

CaseDict = dict[str, Any]

DTYPES: dict[str, torch.dtype] = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp8e4m3": torch.float8_e4m3fn,
    "fp8e5m2": torch.float8_e5m2,
}
VALUES = ("normal", "faint", "shifted", "large", "constant", "positive", "spike", "stagnant")
LAYOUTS = ("contiguous", "padded", "transposed")
RESERVED = ("name", "role", "seed", "fresh")

_ROW_PAD = 5  # odd, so that rows of a padded tensor lose their alignment
_SHIFT = 5.0  # mean of "shifted": a padding zero counted as data shows at once
_DRAWN = (1 << 23) - 15  # elements drawn for one tensor; prime, so that rows of no length line up with the repeats
_DIRECT = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # normal_ writes these without a detour


def dtype_of(params: Mapping[str, Any]) -> torch.dtype:
    """The torch dtype named by ``params["dtype"]`` (fp16 when absent). Raises TaskError for an unknown name."""
    name = str(params.get("dtype", "fp16"))
    if name not in DTYPES:
        raise TaskError(f"unknown dtype {name!r}", f"choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def tensor(
    shape: Sequence[int],
    params: Mapping[str, Any],
    generator: torch.Generator,
    *,
    values: str | None = None,
    layout: str | None = None,
    axis: int = -1,
) -> Tensor:
    """A floating tensor of the case: its dtype, its layout, its kind of values along the reduction ``axis``.

    ``values``: ``normal`` N(0, 1); ``faint`` N(0, 1) / 512, so that an epsilon under a root decides; ``shifted``
    N(5, 1); ``large`` N(0, scale), scale 64 unless the case says;
    ``constant`` one eighth-integer per row (its fp32 mean is exact); ``positive`` uniform in [0.5, 1.5); ``spike``
    small noise with 8 in the last place, so a dropped tail shows; ``stagnant`` 64 in the first place and about 1/8
    after it, so that an accumulator of half precision stops moving.
    ``layout``: ``padded`` has rows further apart than they are long, NaN between them; ``transposed`` has its last
    two dimensions swapped in memory. Tensors of fewer than two dimensions are always contiguous.
    """
    kind = values or str(params.get("values", "normal"))
    scale = float(params.get("scale", 64.0))
    data = _fill(tuple(shape), kind, scale, axis, generator, dtype_of(params))
    return with_layout(data, layout or str(params.get("layout", "contiguous")))


def integers(shape: Sequence[int], high: int, generator: torch.Generator, low: int = 0) -> Tensor:
    """int64 indices drawn uniformly from ``low`` to ``high - 1``."""
    return torch.randint(low, high, tuple(shape), generator=generator)


def with_layout(data: Tensor, layout: str) -> Tensor:
    """The same values laid out otherwise in memory. Raises TaskError for an unknown layout."""
    if layout not in LAYOUTS:
        raise TaskError(f"unknown layout {layout!r}", f"choose one of {', '.join(LAYOUTS)}")
    if layout == "contiguous" or data.dim() < 2:
        return data
    if layout == "transposed":
        return data.transpose(-1, -2).contiguous().transpose(-1, -2)
    columns = data.shape[-1]
    wide = torch.full((*data.shape[:-1], columns + _ROW_PAD), float("nan"), dtype=torch.float32).to(data.dtype)
    wide[..., :columns] = data
    return wide[..., :columns]


def _fill(
    shape: tuple[int, ...], kind: str, scale: float, axis: int, generator: torch.Generator, dtype: torch.dtype
) -> Tensor:
    if kind == "normal":
        made = dtype if dtype in _DIRECT else torch.float32
        return _normal(shape, made, generator).to(dtype)
    if kind == "constant":
        row = list(shape)
        row[axis] = 1
        eighths = torch.randint(-16, 17, row, generator=generator, dtype=torch.int32).to(torch.float32)
        return (eighths / 8 + 0.0625).expand(shape).contiguous().to(dtype)
    if kind == "positive":
        return (torch.rand(shape, generator=generator) + 0.5).to(dtype)
    if kind == "stagnant":
        data = (torch.rand(shape, generator=generator) + 0.5) / 8
        data.select(axis, 0).fill_(64.0)
        return data.to(dtype)
    noise = torch.empty(shape, dtype=torch.float32).normal_(generator=generator)
    if kind == "faint":
        return (noise / 512).to(dtype)
    if kind == "shifted":
        return (noise + _SHIFT).to(dtype)
    if kind == "large":
        return (noise * scale).to(dtype)
    if kind == "spike":
        noise = noise / 64
        noise.select(axis, -1).fill_(8.0)
        return noise.to(dtype)
    raise TaskError(f"unknown values {kind!r}", f"choose one of {', '.join(VALUES)}")


def _normal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """N(0, 1). A large tensor repeats what was drawn, which takes a tenth of the time; no two rows are alike."""
    numel = math.prod(shape)
    drawn = torch.empty(min(numel, _DRAWN), dtype=dtype).normal_(generator=generator)
    if numel <= _DRAWN:
        return drawn.reshape(shape)
    data = torch.empty(numel, dtype=dtype)
    for part in data.split(_DRAWN):
        part.copy_(drawn[: part.numel()])
    return data.reshape(shape)


ROW_DIMS: tuple[dict[str, int], ...] = (
    {"m": 1, "n": 1},
    {"m": 3, "n": 31},
    {"m": 5, "n": 33},
    {"m": 4, "n": 127},
    {"m": 7, "n": 129},
    {"m": 2, "n": 257},
    {"m": 1, "n": 4097},
    {"m": 2, "n": 1024},  # a multiple of every tile: unmasked and wide accesses run only here
)
MATMUL_DIMS: tuple[dict[str, int], ...] = (
    {"m": 1, "n": 1, "k": 1},
    {"m": 31, "n": 33, "k": 17},
    {"m": 33, "n": 31, "k": 127},
    {"m": 129, "n": 17, "k": 64},
    {"m": 3, "n": 257, "k": 65},
    {"m": 5, "n": 7, "k": 1031},
    {"m": 128, "n": 256, "k": 128},  # a multiple of every tile: unmasked and descriptor accesses run only here
)
_ROW_VALUES = ("normal", "large", "shifted", "constant", "normal", "spike", "shifted", "faint")
_ROW_LAYOUTS = ("contiguous", "contiguous", "padded", "contiguous", "transposed", *("contiguous",) * 3)
_MATMUL_VALUES = ("normal", "shifted", "large", "spike", "normal", "stagnant", "normal")
_MATMUL_LAYOUTS = ("contiguous", "contiguous", "padded", "transposed", *("contiguous",) * 3)


def check_cases(
    dims: Sequence[Mapping[str, Any]],
    *,
    dtypes: Sequence[str] = ("fp16",),
    values: Sequence[str] = ("normal", "shifted", "large", "constant", "normal"),
    layouts: Sequence[str] = ("contiguous", "padded", "transposed", "contiguous"),
    fresh: int = 2,
    **extra: Any,
) -> list[CaseDict]:
    """One check case per entry of ``dims``; ``dtypes``, ``values`` and ``layouts`` are dealt out in turn.

    The last ``fresh`` cases draw a new seed in every run, so no kernel can have learned their answer. ``extra``
    goes into every case's parameters.
    """
    dealt = zip(dims, cycle(dtypes), cycle(values), cycle(layouts), strict=False)
    cases = [{**extra, **d, "dtype": t, "values": v, "layout": lay} for d, t, v, lay in dealt]
    for case in cases:
        case["role"] = "check"
    for case in cases[max(0, len(cases) - fresh) :]:
        case["fresh"] = True
    return cases


def row_cases(*dtypes: str, values: Sequence[str] = _ROW_VALUES, **extra: Any) -> list[CaseDict]:
    """The eight standard check cases of an operator over rows of an (m, n) tensor."""
    return check_cases(ROW_DIMS, dtypes=dtypes or ("fp16",), values=values, layouts=_ROW_LAYOUTS, **extra)


def matmul_cases(*dtypes: str, values: Sequence[str] = _MATMUL_VALUES, **extra: Any) -> list[CaseDict]:
    """The seven standard check cases of a product (m, k) @ (k, n): tails in every dimension, and one long sum."""
    extra = {"scale": 8.0, **extra}
    return check_cases(MATMUL_DIMS, dtypes=dtypes or ("fp16",), values=values, layouts=_MATMUL_LAYOUTS, **extra)


def bench_case(**params: Any) -> CaseDict:
    """A case of real size that is compiled and timed, never interpreted whole."""
    return {"dtype": "fp16", **params, "role": "bench"}


def numbered(cases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, CaseDict]]:
    """Each case with its name: the given one, else one made of its parameters; repeats are numbered."""
    seen: dict[str, int] = {}
    for case in cases:
        name = str(case.get("name") or _name(case))
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}-{seen[name]}"), dict(case)


def _name(case: Mapping[str, Any]) -> str:
    params = {k: v for k, v in case.items() if k not in RESERVED}
    sizes = "x".join(str(v) for v in params.values() if isinstance(v, int) and not isinstance(v, bool))
    words = [
        str(params[k]) for k in ("dtype", "layout", "values") if params.get(k) not in (None, "contiguous", "normal")
    ]
    return "-".join(islice(filter(None, [str(case.get("role", "check")), sizes, *words]), 8))
