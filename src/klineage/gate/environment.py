# pyright: reportMissingTypeStubs=false
"""What a verdict is reached with: versions of everything that can change a figure."""

from __future__ import annotations

import platform
import re
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .. import __version__
from ..model import Environment, Provenance, Target, content_hash
from .perf import MODEL_VERSION


@lru_cache(maxsize=1)
def ptxas_version() -> str:
    """Release of the ptxas in Triton's wheel, or "" when it cannot be run."""
    import triton

    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    try:
        text = subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except OSError:
        return ""
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return found.group(1) if found else ""


@lru_cache(maxsize=1)
def judge_digest() -> str:
    """Hash of the judge's own text, so that a verdict reached by another judge is never taken for this one's."""
    package = Path(__file__).parent
    files = [*sorted(package.rglob("*.py")), package.parent / "task" / "tolerance.py"]
    return content_hash(*(f.read_bytes() for f in files), length=8)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def measured_environment(target: Target, facts: dict[str, Any]) -> Environment:
    """The environment of verdicts reached on a GPU; ``facts`` as its worker tells them."""
    clocks = f"{facts['sms']} SMs, {facts['clocks.max.sm']} MHz, memory {facts['clocks.max.mem']} MHz"
    power = f", {facts['power.limit']} W" if facts["power.limit"] else ""
    return Environment(
        target=target.name,
        mode=Provenance.MEASURED,
        triton=_version("triton"),
        torch=_version("torch"),
        ptxas=ptxas_version(),
        python=platform.python_version(),
        device=f"{facts['name']} ({clocks}{power})",
        driver=f"{facts['driver_version']}, CUDA {facts['cuda']}",
        klineage=f"{__version__}+{judge_digest()}",
    )


def modelled_environment(target: Target) -> Environment:
    """The environment of verdicts reached without a GPU."""
    return Environment(
        target=target.name,
        mode=Provenance.MODELLED,
        triton=_version("triton"),
        torch=_version("torch"),
        ptxas=ptxas_version(),
        python=platform.python_version(),
        device=f"{target.part} (modelled)",
        klineage=f"{__version__}+{judge_digest()}",
        model=MODEL_VERSION,
    )
