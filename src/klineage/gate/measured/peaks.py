# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What this device reaches: memory bandwidth and matrix rate, measured once and kept with clocks and versions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import torch

from ...model import content_hash
from .timer import Clock, Run

_ROUNDS = 15


def device_facts() -> dict[str, Any]:
    """Name, capability, SMs, L2, memory, driver and clocks of device 0 ("" where nvidia-smi does not say)."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "arch": 10 * properties.major + properties.minor,
        "sms": properties.multi_processor_count,
        "l2_bytes": int(properties.L2_cache_size),
        "memory_bytes": int(properties.total_memory),
        **_asked("driver_version", "clocks.max.sm", "clocks.max.mem", "clocks.applications.graphics", "power.limit"),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def peaks(clock: Clock, facts: dict[str, Any], cache_dir: Path) -> dict[str, float]:
    """``gbps`` of a large copy, ``fp16_tflops`` of a large product; from the cache when device and versions are the
    same."""
    key = content_hash(json.dumps({k: str(v) for k, v in facts.items()}, sort_keys=True))
    path = cache_dir / "peaks" / f"{key}.json"
    try:
        return {str(k): float(v) for k, v in json.loads(path.read_text())["peaks"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        measured = _measure(clock)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"device": facts, "peaks": measured}, indent=1))
    return measured


def _measure(clock: Clock) -> dict[str, float]:
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = _best(clock, Run(lambda: target.copy_(source)))
    a, b = (torch.randn(8192, 8192, dtype=torch.float16, device="cuda") for _ in range(2))
    product = torch.empty_like(a)
    multiplied = _best(clock, Run(lambda: torch.mm(a, b, out=product)))
    return {"gbps": 2 * len(source) / copied / 1e3, "fp16_tflops": 2 * 8192**3 / multiplied / 1e6}


def _best(clock: Clock, run: Run) -> float:
    clock.times([run] * 4)
    return min(t for _ in range(_ROUNDS) for t in clock.times([run] * 4))


def _asked(*names: str) -> dict[str, str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits", "-i", "0"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return dict.fromkeys(names, "")
    return dict(zip(names, (part.strip() for part in text.split(",")), strict=False))
