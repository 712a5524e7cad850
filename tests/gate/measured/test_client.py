"""The parent's end of the worker: what is lost is told from what failed, and a new worker knows the tasks."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from klineage.errors import EnvironmentLackError, HarnessError
from klineage.gate.measured.client import GpuWorker, WorkerLost, lease

SERVER = """
import os, socket, sys, time
sys.path[:0] = {path!r}
from klineage.gate import wire
connection = socket.socket(fileno=int(sys.argv[1]))
wire.send(connection, {{"ready": True}})
known = []
while True:
    try:
        request = wire.receive(connection)
    except wire.WireError:
        break
    what = request["do"]
    if what == "task":
        known.append(request["task"])
    if what == "die" or (what == "die once" and not os.path.exists(request["mark"])):
        open(request.get("mark", os.devnull), "w").close()
        os._exit(1)
    if what == "hang":
        time.sleep(60)
    lost = what == "crash"
    wire.send(connection, {{"ok": what not in ("crash", "fail"), "error": what, "lost": lost, "known": known}})
    if lost:
        time.sleep(0.3)
        break
"""


@pytest.fixture
def worker(tmp_path: Path):
    import sys

    script = tmp_path / "server.py"
    script.write_text(SERVER.format(path=[p for p in sys.path if p]))
    made = GpuWorker(tmp_path, 2.0, [str(script)])
    yield made
    made.close()


def test_a_worker_that_cannot_start_is_a_lack_of_the_environment(tmp_path: Path):
    with pytest.raises(EnvironmentLackError, match="the GPU worker did not start"):
        GpuWorker(tmp_path, 2.0, ["-c", "pass"]).ask({"do": "device"})


@pytest.mark.parametrize(("what", "said"), [("crash", "crash"), ("die", "the worker ended"), ("hang", "no end within")])
def test_what_a_request_costs_is_not_the_next_ones(worker: GpuWorker, what: str, said: str):
    worker.ask({"do": "task", "task": "one"})
    with pytest.raises(WorkerLost, match=said):
        worker.ask({"do": what})
    assert worker.ask({"do": "look"})["known"] == ["one"]
    assert worker.replaced >= 1


def test_a_worker_killed_by_others_is_asked_again(worker: GpuWorker, tmp_path: Path):
    assert worker.ask({"do": "die once", "mark": str(tmp_path / "mark")})["ok"]
    assert worker.replaced == 1


def test_a_failure_of_the_worker_itself_is_the_harness_s(worker: GpuWorker):
    with pytest.raises(HarnessError, match="the GPU worker failed: fail"):
        worker.ask({"do": "fail"})
    assert worker.ask({"do": "look"})["ok"]


def test_others_wait_while_one_kernel_takes_the_worker_down(worker: GpuWorker):
    results: list[bool] = []

    def ask() -> None:
        results.append(bool(worker.ask({"do": "look"})["ok"]))

    def crash() -> None:
        with pytest.raises(WorkerLost):
            worker.ask({"do": "crash"})

    threads = [threading.Thread(target=t) for t in (crash, ask, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True, True]


def test_one_process_times_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    held: list[str] = []

    def other() -> None:
        with lease():
            held.append("other")

    with lease():
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.05)
        held.append("first")
    thread.join(5)
    assert held == ["first", "other"]
    (file,) = tmp_path.iterdir()
    assert file.stat().st_uid == os.getuid() and file.stat().st_mode & 0o777 == 0o600


def test_another_gpu_has_another_lease(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with lease():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1/../2")
        with lease():
            assert len(list(tmp_path.iterdir())) == 2
