# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What this device reaches: memory bandwidth and matrix rates, measured once and kept with clocks and versions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import torch

from ...model import content_hash
from .timer import Clock, Run

_ROUNDS, _SIDE = 15, 8192
_FORM = 2  # of what is kept
_QUERY = ("driver_version", "clocks.max.sm", "clocks.max.mem", "clocks.applications.graphics", "power.limit")


def device_facts() -> dict[str, Any]:
    """Name, capability, SMs, L2, memory, driver and clocks of the first visible device ("" where nvidia-smi does not
    say)."""
    properties = torch.cuda.get_device_properties(0)
    uuid = f"GPU-{properties.uuid}" if hasattr(properties, "uuid") else ""
    return {
        "name": properties.name,
        "arch": 10 * properties.major + properties.minor,
        "sms": properties.multi_processor_count,
        "l2_bytes": int(properties.L2_cache_size),
        "memory_bytes": int(properties.total_memory),
        "uuid": uuid,
        **_asked(uuid),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def peaks(clock: Clock, facts: dict[str, Any], cache_dir: Path) -> dict[str, float]:
    """``gbps`` of a large copy, ``fp16_tflops`` and ``fp32_tflops`` of a large product; from the cache when device,
    clocks and versions are the same."""
    path = cache_dir / "peaks" / f"{peaks_key(facts)}.json"
    try:
        return {str(k): float(v) for k, v in json.loads(path.read_text())["peaks"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        measured = _measure(clock)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"device": facts, "peaks": measured}, indent=1))
    return measured


def peaks_key(facts: dict[str, Any]) -> str:
    """What the rates of a device are kept under: everything known of it, its driver and its libraries."""
    return content_hash(json.dumps({"form": _FORM, **{k: str(v) for k, v in facts.items()}}, sort_keys=True))


def _measure(clock: Clock) -> dict[str, float]:
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = _best(clock, Run(lambda: target.copy_(source)))
    rates = {"gbps": 2 * len(source) / copied / 1e3}
    for name, dtype in (("fp16_tflops", torch.float16), ("fp32_tflops", torch.float32)):
        a, b = (torch.randn(_SIDE, _SIDE, dtype=dtype, device="cuda") for _ in range(2))
        rates[name] = 2 * _SIDE**3 / _best(clock, _product(a, b)) / 1e6
    return rates


def _product(a: torch.Tensor, b: torch.Tensor) -> Run:
    product = torch.empty_like(a)
    return Run(lambda: torch.mm(a, b, out=product))


def _best(clock: Clock, run: Run) -> float:
    clock.times([run] * 4)
    return min(t for _ in range(_ROUNDS) for t in clock.times([run] * 4))


def _asked(uuid: str) -> dict[str, str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits", "-i"]
    for device in (uuid, "0") if uuid else ("0",):
        try:
            told = subprocess.run([*command, device], capture_output=True, text=True, timeout=20, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        return dict(zip(_QUERY, (part.strip() for part in told.split(",")), strict=False))
    return dict.fromkeys(_QUERY, "")
