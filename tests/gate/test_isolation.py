"""What SECURITY.md promises about confinement, attack by attack."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import klineage
from klineage.gate.compile import compile_kernel
from klineage.gate.workers import Limits, Zygote
from klineage.model import Kernel, target

sys.path.insert(0, str(Path(__file__).parent))  # workers import from where their parent does
import hostile_jobs
from kernels_text import COPY

ATTEMPT = f"{hostile_jobs.__name__}:attempt"


@pytest.fixture(scope="module", params=["interpret", "compile", "plain"])
def worker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(request.param, cache_dir=tmp_path_factory.mktemp("cache")) as zygote:
        yield zygote


def needs(zygote: Zygote, *parts: str) -> None:
    lacking = set(parts) - set(zygote.isolation)
    if lacking:
        pytest.skip(f"this kernel does not allow {', '.join(sorted(lacking))}")


@pytest.mark.parametrize(
    ("attack", "parts"),
    [
        ("socket", ["net"]),
        ("parent's memory", ["pid"]),
        ("ptrace", ["seccomp"]),
        ("kill everything", ["seccomp"]),
        ("kill the server", ["seccomp"]),
        ("mount", ["seccomp"]),
        ("new namespace", ["seccomp"]),
    ],
)
def test_attack_is_refused(worker: Zygote, attack: str, parts: list[str]) -> None:
    needs(worker, *parts)
    result = worker.run(ATTEMPT, {"attack": attack})
    assert result.value is not None and "refused" in result.value, result


def test_memory_that_nobody_would_count_is_refused(worker: Zygote) -> None:
    if worker.flavour == "plain":
        pytest.skip("a GPU's driver may need it")
    needs(worker, "seccomp")
    result = worker.run(ATTEMPT, {"attack": "memory file"})
    assert result.value == {"refused": "PermissionError"}


def test_memory_of_a_child_that_left_the_session_is_counted(worker: Zygote) -> None:
    if worker.flavour != "plain":
        pytest.skip("addresses are limited, or nothing may be started")
    needs(worker, "proc")
    limits = Limits(memory_bytes=None, resident_bytes=512 << 20)
    assert worker.run(f"{hostile_jobs.__name__}:hide_and_fill", {}, limits).value == {"code": -9}


@pytest.mark.parametrize("attack", ["fork", "thread", "program"])
def test_a_kernel_that_runs_starts_nothing(worker: Zygote, attack: str) -> None:
    if worker.flavour != "interpret":
        pytest.skip("compiling runs ptxas")
    needs(worker, "seccomp")
    result = worker.run(ATTEMPT, {"attack": attack})
    assert result.value is not None and "refused" in result.value, result


def test_compiling_may_run_programs(worker: Zygote) -> None:
    if worker.flavour != "compile":
        pytest.skip("for the compile worker")
    assert worker.run(ATTEMPT, {"attack": "program"}).value == {"got": "0"}


def test_a_server_on_this_machine_cannot_be_reached(worker: Zygote) -> None:
    needs(worker, "net")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        result = worker.run(ATTEMPT, {"attack": "local socket", "port": listening.getsockname()[1]})
    assert result.value is not None and "refused" in result.value


@pytest.mark.parametrize("attack", ["parent's memory", "parent's environment"])
def test_the_judges_process_is_not_there(worker: Zygote, attack: str) -> None:
    needs(worker, "pid", "proc")
    assert os.getpid() not in worker.run(f"{hostile_jobs.__name__}:processes", {}).value["pids"]  # type: ignore[index]
    result = worker.run(ATTEMPT, {"attack": attack, "pid": os.getpid()})
    assert result.value is not None and "refused" in result.value


def test_a_neighbour_survives_an_attempt_to_kill_all(worker: Zygote) -> None:
    needs(worker, "seccomp")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        neighbour = pool.submit(worker.run, f"{hostile_jobs.__name__}:wait", {"s": 1.0})
        worker.run(ATTEMPT, {"attack": "kill everything"})
        assert neighbour.result().value == {"alive": True}


def test_a_job_that_multiplies_is_killed_whole(worker: Zygote) -> None:
    if worker.flavour != "compile":
        pytest.skip("nothing can be forked while a kernel runs")
    needs(worker, "proc")
    result = worker.run(f"{hostile_jobs.__name__}:multiply", {})
    assert result.outcome == "killed" and result.wall_s < 10
    assert len(worker.run(f"{hostile_jobs.__name__}:processes", {}).value["pids"]) < 8  # type: ignore[index]


@pytest.mark.parametrize("place", ["package", "home", "temporary", "shared memory", "task"])
def test_files_of_others_stay_as_they_are(worker: Zygote, place: str, tmp_path: Path) -> None:
    needs(worker, "landlock")
    folder = {
        "package": Path(klineage.__file__).parent, "home": Path.home(), "temporary": tmp_path,
        "shared memory": Path("/dev/shm"), "task": Path(__file__).parent / "data",
    }[place]  # fmt: skip
    path = folder / "klineage-attack.txt"
    result = worker.run(ATTEMPT, {"attack": "write", "path": str(path)})
    if worker.flavour == "plain" and place == "shared memory":  # it has its own
        needs(worker, "mount")
        assert result.value == {"got": "written"}
    else:
        assert result.value == {"refused": "PermissionError"}
    assert not path.exists()


def test_the_scratch_is_of_limited_size_and_ends_with_the_job(worker: Zygote) -> None:
    needs(worker, "mount")
    small = Limits(file_bytes=32 << 20)
    assert worker.run(ATTEMPT, {"attack": "fill the scratch"}, small).value == {"refused": "OSError"}
    assert worker.run(ATTEMPT, {"attack": "write", "path": "after.txt"}, small).value == {"got": "written"}


SPOILER = """
import os, pathlib
for path in pathlib.Path(os.environ["TRITON_CACHE_DIR"]).parent.rglob("*.cubin"):
    path.write_bytes(b"spoilt")
"""


def test_a_candidate_cannot_spoil_anothers_binary(tmp_path: Path) -> None:
    specs = [("one", [("tensor", [4096], [1], "float32")])]
    where = target("sm_90")
    with Zygote("compile", cache_dir=tmp_path) as zygote:
        needs(zygote, "landlock")
        first = compile_kernel(zygote, Kernel(source=COPY), specs, where)
        spoiling = compile_kernel(zygote, Kernel(source=SPOILER + COPY), specs, where)
        assert "PermissionError" in spoiling.reason
        again = compile_kernel(zygote, Kernel(source=COPY), specs, where)
    assert first.ok and again.ok and again.signature == first.signature
    assert not any(b"spoilt" in path.read_bytes() for path in tmp_path.rglob("*.cubin"))


def test_bubblewrap_makes_the_namespaces_where_it_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    monkeypatch.setenv("KLINEAGE_BUBBLEWRAP", "always")
    with Zygote("interpret", cache_dir=tmp_path) as zygote:
        if "bubblewrap" not in zygote.isolation:
            pytest.skip("bubblewrap does not work on this kernel")
        assert {"pid", "net"} <= set(zygote.isolation)
        result = zygote.run(ATTEMPT, {"attack": "parent's environment", "pid": os.getpid()})
        assert result.value is not None and "refused" in result.value
