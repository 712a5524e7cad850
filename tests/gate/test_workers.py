"""Workers: whatever a job does is an outcome, nothing is left behind, and the next job is right."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from klineage.errors import EnvironmentLackError, HarnessError
from klineage.gate import workers
from klineage.gate.workers import JobResult, Limits, Zygote

sys.path.insert(0, str(Path(__file__).parent))  # workers import from where their parent does
import worker_jobs

JOBS = worker_jobs.__name__
SHORT = Limits(wall_s=1.0)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote("plain", cache_dir=tmp_path_factory.mktemp("cache")) as z:
        yield z


def strays() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if worker_jobs.MARK.encode() in command.split(b"\0"):
                found.append(command.decode())
    return found


@pytest.mark.parametrize(
    ("function", "outcome", "error"),
    [
        (worker_jobs.exit_quietly, "exited", "status 0 without an answer"),
        (worker_jobs.system_exit, "exited", "SystemExit: 0"),
        (worker_jobs.kill_itself, "killed", "SIGKILL"),
        (worker_jobs.crash, "killed", "SIGSEGV"),
        (worker_jobs.loop, "timeout", "within 1 s"),
        (worker_jobs.ignore_signals_and_sleep, "timeout", "within 1 s"),
        (worker_jobs.print_much, "output_cap", "printed more than"),
        (worker_jobs.daemonise, "exited", "status 3"),
        (worker_jobs.complain, "error", "ValueError: first line"),
        (worker_jobs.raise_evil, "error", "_Evil: (its message cannot be read)"),
        (worker_jobs.return_nonsense, "error", "did not return a dict"),
        (worker_jobs.return_object, "error", "cannot hold a object"),
    ],
    ids=lambda v: v.__name__ if callable(v) else None,
)
def test_a_bad_job_is_an_outcome_and_the_next_is_right(zygote: Zygote, function: Any, outcome: str, error: str):
    result = zygote.run(f"{JOBS}:{function.__name__}", {}, SHORT)
    assert (result.outcome, result.value) == (outcome, None)
    assert error in result.error
    assert "\n" not in result.error
    assert result.wall_s < 5
    following = zygote.run(f"{JOBS}:double", {"x": 21})
    assert following.value is not None and following.value["twice"] == 42
    assert strays() == []


@pytest.mark.parametrize(
    "frame",
    [
        b"not a frame at all",
        b"KLWIRE1\n" + (10 << 30).to_bytes(8, "little"),
        b"KLWIRE1\n" + (9).to_bytes(8, "little") + b"{broken]}",
        b"KLWIRE1\n" + (39).to_bytes(8, "little") + b'{"tree": {}, "sizes": [10000000000000]}',
        b"KLWIRE1\n" + (24).to_bytes(8, "little") + b'{"tree": 3, "sizes": []}',
    ],
    ids=["no mark", "huge header", "not JSON", "huge buffer", "not a dict"],
)
def test_a_forged_answer_is_an_error(zygote: Zygote, frame: bytes):
    result = zygote.run(f"{JOBS}:forge_frame", {"bytes": frame}, Limits(wall_s=5))
    assert result.outcome == "error"
    assert "malformed answer" in result.error
    assert result.wall_s < 4


def test_a_grandchild_dies_with_its_job(zygote: Zygote):
    assert zygote.run(f"{JOBS}:fork_grandchild", {}).ok
    assert strays() == []


def test_fifty_jobs_in_two_threads(zygote: Zygote):
    def job(n: int) -> JobResult:
        if n % 10 == 3:
            return zygote.run(f"{JOBS}:exit_quietly", {})
        return zygote.run(f"{JOBS}:double", {"x": n})

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(job, range(50)))
    for n, result in enumerate(results):
        if n % 10 == 3:
            assert result.outcome == "exited"
        else:
            assert result.value is not None and result.value["twice"] == 2 * n
    assert len({r.value["pid"] for r in results if r.value}) == 45


def test_a_killed_server_is_replaced():
    with Zygote("plain") as z:
        if "seccomp" in z.isolation:
            assert "PermissionError" in z.run(f"{JOBS}:kill_server", {}).error
        elif "pid" in z.isolation:
            assert z.run(f"{JOBS}:kill_server", {}).value == {"survived": True}
        else:
            assert z.run(f"{JOBS}:kill_server", {}).outcome == "killed"
        assert z.run(f"{JOBS}:double", {"x": 3}).ok
        z._server._process.kill()  # pyright: ignore
        z._server._process.wait()  # pyright: ignore
        assert z.run(f"{JOBS}:double", {"x": 4}).ok


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "torch.py").write_text("raise ImportError('torch is broken here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Zygote("plain") as z, pytest.raises(HarnessError, match="torch is broken here"):
        z.run(f"{JOBS}:double", {"x": 1})


def test_a_cache_that_cannot_be_made_says_what_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentLackError, match="KLINEAGE_CACHE_DIR"):
        Zygote("plain", cache_dir=tmp_path / "file")


def test_an_old_cache_is_thinned_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "_CACHE_ENTRIES", 2)
    for name, age in (("old", 30 * 86400), ("new", 60), ("newer", 0)):
        entry = tmp_path / "triton" / name
        entry.mkdir(parents=True)
        os.utime(entry, (time.time() - age,) * 2)
    Zygote("plain", cache_dir=tmp_path).close()
    assert sorted(x.name for x in (tmp_path / "triton").iterdir()) == ["new", "newer"]


def test_a_closed_pool_refuses():
    z = Zygote("plain")
    z.close()
    with pytest.raises(HarnessError, match="closed"):
        z.run(f"{JOBS}:double", {"x": 1})


def test_files_outside_stay_as_they_are(zygote: Zygote, tmp_path: Path):
    if "landlock" not in zygote.isolation:
        pytest.skip("this kernel has no Landlock")
    target = tmp_path / "task.py"
    target.write_text("original")
    assert zygote.run(f"{JOBS}:write_file", {"path": str(target)}).value == {"error": "PermissionError"}
    assert target.read_text() == "original"


def test_each_job_has_its_own_directory_and_leaves_none(zygote: Zygote):
    first = zygote.run(f"{JOBS}:scratch_files", {}).value
    second = zygote.run(f"{JOBS}:scratch_files", {}).value
    assert first and second
    assert first["files"] == second["files"] == ["here.txt"]
    assert not Path(first["cwd"]).exists()


def test_memory_is_limited(zygote: Zygote):
    small = Limits(memory_bytes=256 << 20)
    result = zygote.run(f"{JOBS}:allocate", {"bytes": 1 << 30}, small)
    assert (result.outcome, result.error.split(":")[0]) == ("error", "MemoryError")
    assert zygote.run(f"{JOBS}:allocate", {"bytes": 1 << 20}, small).value == {"n": 1 << 20}


def test_memory_in_use_is_limited_where_addresses_are_not(zygote: Zygote):
    small = Limits(memory_bytes=None, resident_bytes=512 << 20)
    result = zygote.run(f"{JOBS}:fill_memory", {"bytes": 2 << 30}, small)
    assert (result.outcome, result.error) == ("killed", "its processes used more than 512 MiB of memory")
    assert result.wall_s < 8
    assert zygote.run(f"{JOBS}:fill_memory", {"bytes": 64 << 20}, small).value == {"n": 64 << 20}


def test_no_secret_reaches_a_job(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    for flavour, interpreted in (("plain", False), ("interpret", True)):
        with Zygote(flavour) as z:  # type: ignore[arg-type]
            value = z.run(f"{JOBS}:environment", {}).value
        assert value and "SOME_API_KEY" not in value["names"]
        assert value["interpret"] is interpreted


def test_output_is_kept_as_a_tail(zygote: Zygote):
    result = zygote.run(f"{JOBS}:talk", {})
    assert "to stdout" in result.stdout_tail
    assert "to stderr" in result.stdout_tail


def test_arrays_and_tensors_come_back_equal(zygote: Zygote):
    sent = {
        "a": np.arange(12, dtype=np.int16).reshape(3, 4),
        "t": torch.randn(1 << 20).to(torch.bfloat16),
        "s": torch.randn(8, 6).t(),
    }
    back = zygote.run(f"{JOBS}:echo", sent).value
    assert back is not None
    assert np.array_equal(back["a"], sent["a"])
    assert torch.equal(back["t"], sent["t"])
    assert torch.equal(back["s"], sent["s"]) and back["s"].stride() == sent["s"].stride()


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_the_parents_end_leaves_no_process(tmp_path: Path, signal_number: int):
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys\n"
        f"sys.path[:] = {sys.path!r}\n"
        "from klineage.gate.workers import Zygote\n"
        "def run():\n"
        "    with Zygote('plain') as z:\n"
        f"        assert z.run('{JOBS}:double', {{'x': 1}}).ok\n"
        "        print('ready', flush=True)\n"
        f"        z.run('{JOBS}:sleep_marked', {{}})\n"
        "run()\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert parent.stdout is not None and parent.stdout.readline() == b"ready\n"
    _wait_for(lambda: len(strays()) == 1)
    parent.send_signal(signal_number)
    parent.wait(timeout=10)
    _wait_for(lambda: strays() == [])
    _wait_for(lambda: list(scratch.iterdir()) == [])


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
