"""What this machine can do, and the fix for what it cannot."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path

from packaging.version import Version
from rich.console import Group, RenderableType
from rich.text import Text

from ..errors import KLineageError
from ..gate.gpu import Gpu, find_gpu
from ..model import Frozen

TRITON_RANGE = (Version("3.6"), Version("3.10"))  # from, below
TOOLS = ("ptxas", "nvdisasm", "cuobjdump")
EXPERTS = {
    "liger-kernel": "pip install 'klineage[experts]'",
    "fla-core": "pip install 'klineage[experts]'",
    "conch-triton-kernels": "pip install --no-deps conch-triton-kernels",
    "cut-cross-entropy": "pip install --no-deps cut-cross-entropy",
}
EXTRAS = {  # what each lets a person do, by the package that shows it is there
    "pydantic-ai-slim": ("llm", "a model as the proposer (--model)"),
    "mcp": ("mcp", "tools for coding agents (klineage mcp)"),
    "trl": ("train", "training on what klineage export writes"),
}

_ASK_TORCH = """
import json, torch
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "gpu": torch.cuda.is_available()}))
"""
_ASK_TRITON = "import triton, triton.language, triton.compiler; print(triton.__version__)"
_ASK_ISOLATION = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
newuser, newnet = 0x10000000, 0x40000000
flags = newnet if os.geteuid() == 0 else newuser | newnet
raise SystemExit(0 if libc.unshare(flags) == 0 else 1)
"""


class Check(Frozen):
    """One thing looked at. ``needed`` ones decide whether a run without a GPU is possible."""

    name: str
    ok: bool
    found: str
    fix: str = ""
    needed: bool = True


def examine(store: str | None) -> list[Check]:
    """Look at everything; never raises for something missing."""
    gpu = find_gpu()
    torch = _ask(_ASK_TORCH)
    return [
        _python(),
        _torch(torch, gpu),
        _triton(),
        *_tools(),
        _isolation(),
        _namespaces(),
        _store(store),
        *_experts(),
        *_extras(),
        _gpu(gpu),
        _measured(gpu, torch),
        _compiler(gpu),
    ]


def can_run(checks: Sequence[Check]) -> bool:
    """Whether a run without a GPU is possible."""
    return all(check.ok for check in checks if check.needed)


def doctor_page(checks: Sequence[Check]) -> RenderableType:
    """One line per check, its fix below it, and what it all means."""
    lines: list[Text] = []
    for check in checks:
        word, style = ("ok", "green") if check.ok else ("missing", "red" if check.needed else "yellow")
        lines.append(Text.assemble((f"{word:8}", style), (f"{check.name:22}", "bold"), check.found))
        if not check.ok and check.fix:
            lines.append(Text(f"{'':8}fix: {check.fix}", style))
    measured = next((c.ok for c in checks if c.name == "measured mode"), False)
    lines.append(Text())
    for mode, able, how in (
        ("modelled", can_run(checks), "compile for any target, check under the interpreter, model the time"),
        ("measured", measured and can_run(checks), "run and time on this machine's GPU"),
    ):
        state = Text("yes", "green") if able else Text("no", "red" if mode == "modelled" else "yellow")
        lines.append(Text.assemble((f"{mode}: ", "bold"), state, f" ({how})"))
    return Group(*lines)


def _ask(code: str) -> str | None:
    """What a fresh interpreter prints for ``code`` (a broken package cannot break us), or None."""
    try:
        asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python() -> Check:
    ok = sys.version_info >= (3, 11)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {cores} cores"
    return Check(name="python", ok=ok, found=found, fix="use Python 3.11 or newer")


def _torch(answer: str | None, gpu: Gpu | None) -> Check:
    version = _installed("torch")
    if answer is None:
        broken = f"{version} is installed but does not import" if version else "not installed"
        return Check(name="torch", ok=False, found=broken, fix="pip install --force-reinstall torch")
    told = json.loads(answer)
    build = f"CUDA {told['cuda']} build" if told["cuda"] else "CPU build"
    wasted = " (the GPU stays unused)" if gpu and not told["cuda"] else ""
    return Check(name="torch", ok=True, found=f"{told['version']}, {build}{wasted}")


def _triton() -> Check:
    low, high = TRITON_RANGE
    fix = f"pip install 'triton>={low},<{high}'"
    version = _installed("triton")
    if version is None:
        return Check(name="triton", ok=False, found="not installed", fix=fix)
    if not low <= Version(version) < high:
        return Check(name="triton", ok=False, found=f"{version}: not in {low} up to {high}", fix=fix)
    if _ask(_ASK_TRITON) is None:
        return Check(name="triton", ok=False, found=f"{version} does not import", fix=f"{fix} --force-reinstall")
    return Check(name="triton", ok=True, found=version)


def _tools() -> list[Check]:
    spec = util.find_spec("triton")
    origin = Path(spec.origin).parent if spec and spec.origin else None
    checks: list[Check] = []
    for tool in TOOLS:
        path = origin / "backends" / "nvidia" / "bin" / tool if origin else None
        version = _tool_version(path) if path else None
        found = version or "not in the triton package"
        fix = "pip install --force-reinstall triton (its Linux wheel brings the tool)"
        checks.append(Check(name=tool, ok=version is not None, found=found, fix=fix))
    return checks


def _tool_version(path: Path) -> str | None:
    try:
        told = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    release = [line for line in told.stdout.splitlines() if "release" in line]
    return release[0].split("release", 1)[1].split(",")[0].strip() if release else "runs"


def _isolation() -> Check:
    ok = hasattr(os, "fork") and hasattr(os, "setsid")
    found = "each candidate runs in a forked process of its own" if ok else "no fork on this system"
    return Check(name="isolation", ok=ok, found=found, fix="use Linux (on Windows: WSL 2)")


def _namespaces() -> Check:
    from ..gate.bubblewrap import wrapper

    ok = _ask(_ASK_ISOLATION) is not None
    found = "candidates can be cut off from the network" if ok else "unshare is not permitted"
    if not ok and wrapper():
        ok, found = True, "by bubblewrap: unshare is not permitted without it"
    fix = "install bubblewrap (apt-get install bubblewrap), or judge only kernels you trust"
    return Check(name="network namespaces", ok=ok, found=found, fix=fix, needed=False)


def _store(place: str | None) -> Check:
    from ..store import DEFAULT_STORE, open_store

    try:
        if place is not None and "://" in place:
            store = open_store(place)
            found = f"{store.location} answers"
            store.close()
            return Check(name="store", ok=True, found=found)
        path = Path(place or DEFAULT_STORE).expanduser().absolute()
        if path.exists():
            store = open_store(path)
            state = store.check()
            store.close()
            fix = "restore a copy, or move it away to start anew"
            return Check(name="store", ok=state == "ok", found=f"{path}: {state}", fix=fix)
        folder = next(p for p in path.parents if p.exists())
        with tempfile.TemporaryDirectory(prefix=".klineage-doctor-", dir=folder) as trial:
            open_store(Path(trial) / "store.db").close()
        return Check(name="store", ok=True, found=f"{path} can be made")
    except KLineageError as error:
        return Check(name="store", ok=False, found=error.message, fix=error.fix)
    except OSError as error:
        return Check(name="store", ok=False, found=str(error), fix="choose another place with --store")


def _extras() -> list[Check]:
    checks: list[Check] = []
    for package, (extra, purpose) in EXTRAS.items():
        version = _installed(package)
        found = f"{package} {version}: {purpose}" if version else f"{package} is not installed: no {purpose}"
        fix = f"pip install 'klineage[{extra}]'"
        checks.append(Check(name=f"extra {extra}", ok=version is not None, found=found, fix=fix, needed=False))
    return checks


def _experts() -> list[Check]:
    checks: list[Check] = []
    for package, fix in EXPERTS.items():
        version = _installed(package)
        checks.append(
            Check(name=package, ok=version is not None, found=version or "not installed", fix=fix, needed=False)
        )
    return checks


def _gpu(gpu: Gpu | None) -> Check:
    if gpu is None:
        fix = "none needed: --target chooses an architecture; to measure, use a machine with an NVIDIA GPU and driver"
        return Check(name="GPU", ok=False, found="none", fix=fix, needed=False)
    driver = _driver_version()
    found = (
        f"{gpu.count} x {gpu.name}, sm_{gpu.arch}, driver {driver} (CUDA {gpu.cuda // 1000}.{gpu.cuda % 1000 // 10})"
    )
    return Check(name="GPU", ok=True, found=found, needed=False)


def _driver_version() -> str:
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")


def _measured(gpu: Gpu | None, answer: str | None) -> Check:
    usable = bool(gpu and answer and json.loads(answer)["gpu"])
    if usable:
        return Check(name="measured mode", ok=True, found="torch sees the GPU", needed=False)
    found = "torch does not see the GPU" if gpu else "no GPU: times are modelled"
    fix = "pip install --force-reinstall torch from the index of your CUDA version (pytorch.org)" if gpu else ""
    return Check(name="measured mode", ok=False, found=found, fix=fix, needed=False)


def _compiler(gpu: Gpu | None) -> Check:
    compiler = os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    ok = compiler is not None
    found = compiler or ("not found" if gpu else "not found (needed with a GPU only)")
    return Check(name="C compiler", ok=ok, found=found, fix="apt-get install gcc", needed=False)
