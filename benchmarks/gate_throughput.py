"""Verdicts a minute on this machine's GPU: warm workers beside a fresh process for each candidate.

Usage: python benchmarks/gate_throughput.py [--candidates 40] [--fresh 5] [--out FILE]

Candidates are the naive kernels of shipped tasks with other tiles and warps, each judged once, with small bench
shapes (a few MB), so that what is timed is the gate. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from klineage import api
from klineage.model import Kernel
from klineage.task import load_task

TASKS = ("softmax", "layer_norm", "log_softmax", "add_rms_norm")
VARIANTS = list(itertools.product((128, 256, 512, 1024), (2, 4, 8)))


def small_task(name: str, folder: Path) -> str:
    """A copy of a shipped task with bench shapes of a few MB; its path."""
    task = load_task(name, check=False)
    assert task.path is not None
    text = task.path.read_text()
    path = folder / f"small_{name}.py"
    text += "\nfor _case in CASES:\n    if _case['role'] == 'bench':\n        _case.update(m=512, n=2048)\n"
    (folder / "kernels").mkdir(exist_ok=True)
    for kernel in (task.path.parent / "kernels").glob("*.py"):
        (folder / "kernels" / kernel.name).write_text(kernel.read_text())
    path.write_text(text)
    return str(path)


def variants(kernel: Kernel) -> list[Kernel]:
    """The kernel with other tiles and warps."""
    found: list[Kernel] = []
    for block, warps in VARIANTS:
        source = kernel.source.replace("BLOCK_SIZE=256", f"BLOCK_SIZE={block}, num_warps={warps}")
        if source != kernel.source:
            found.append(kernel.derive(source, f"block {block}, warps {warps}"))
    return found


def fresh(task: str, kernel: Kernel, folder: Path) -> float:
    """Seconds of a verdict from a new process."""
    file = folder / f"{kernel.id}.py"
    file.write_text(kernel.source)
    began = time.monotonic()
    command = [sys.executable, "-m", "klineage", "gate", task, str(file), "--store", str(folder / f"{kernel.id}.db")]
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - began


def main() -> int:
    """Print and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--fresh", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tasks = {name: small_task(name, folder) for name in TASKS}
        with api.Session(store=str(folder / "warm.db"), jobs=8) as session:
            if str(session.gate.mode) != "measured":
                print("this needs an NVIDIA GPU", file=sys.stderr)
                return 1
            lots: list[list[tuple[str, Kernel]]] = []
            for path in tasks.values():
                judge = session.judge(path)
                naive = judge.task.naive()
                assert naive is not None
                first = judge.judge(naive)  # the task's inputs are on the device from here on
                print(f"{judge.info.name}: {first.status} {first.reason}", flush=True)
                lots.append([(path, k) for k in variants(naive)])
            mixed = [c for lot in itertools.zip_longest(*lots) for c in lot if c is not None][: options.candidates]
            alone, alone_s = mixed[: len(mixed) // 3], []
            for path, kernel in alone:
                began = time.monotonic()
                session.judge(path).judge(kernel)
                alone_s.append(time.monotonic() - began)
            rest = mixed[len(alone) :]
            began = time.monotonic()
            with ThreadPoolExecutor(options.at_once) as pool:
                verdicts = list(pool.map(lambda c: session.judge(c[0]).judge(c[1]), rest))
            together_s = time.monotonic() - began
        fresh_s = [fresh(path, kernel, folder) for path, kernel in mixed[: options.fresh]]
    report = {
        "one at a time, median s": statistics.median(alone_s),
        "one at a time, worst s": max(alone_s),
        f"{options.at_once} at once, verdicts a minute": 60 * len(rest) / together_s,
        "fresh process each, median s": statistics.median(fresh_s),
        "fresh process each, verdicts a minute": 60 / statistics.mean(fresh_s),
        "accepted": sum(v.accepted for v in verdicts),
        "judged": len(mixed),
    }
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
