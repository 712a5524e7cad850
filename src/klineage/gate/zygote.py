# pyright: reportMissingTypeStubs=false
"""The worker server: a process that has imported torch and triton once and forks a fresh child for every job.

Run as a script by klineage.gate.workers (never imported there): ``zygote.py <control descriptor> <flavour>``.
One message on the control socket is one job: JSON limits plus three descriptors (data, output, status). The child
owns data and output. The server keeps status: it writes how the child ended, once every process of the job is
gone, and takes end of file on it as the order to kill the job.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import gc
import importlib
import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

FLAVOURS = {
    "compile": ("klineage.gate.compile_job", "klineage.gate.score"),
    "interpret": ("klineage.gate.interpreter",),
}
# what the filter of system calls refuses beside foreign ones: compiling runs ptxas, a GPU's driver talks to its daemons
_FILTERS = {
    "compile": {"new_processes": False},
    "interpret": {"new_processes": True},
    "plain": {"new_processes": False, "local_sockets": True},
}
_MOST_PROCESSES = 64  # of one job: ptxas and a few helpers
_LOOK_S = 0.25
CONTROL_BYTES = 1 << 16
_LINE = 500
_REQUEST_BYTES = 1 << 40  # requests come from the parent, which is trusted


def _load(name: str) -> Any:
    # by path: the package may start threads when imported, and a process with threads cannot enter a user namespace
    spec = importlib.util.spec_from_file_location(f"_klineage_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


isolate = _load("isolate")
syscalls = _load("syscalls")


@dataclasses.dataclass
class _Job:
    pid: int
    status: socket.socket
    directory: Path
    resident_bytes: int | None  # that its processes may use together
    why: str = ""  # it was killed


def _ignore(_number: int, _frame: object) -> None:
    """A handler, so that the wake-up descriptor is written to."""


class _Server:
    def __init__(self, control: socket.socket, workdir: Path, flavour: str, alone: bool) -> None:
        self.control = control
        self.flavour = flavour
        self.alone = alone  # in a PID namespace of its own, with its own /proc
        self.looked_at = 0.0
        self.workdir = workdir
        self.jobs: dict[int, _Job] = {}
        self.count = 0
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(self.wake_write, False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve jobs until the parent closes the control socket or ends."""
        while True:
            waiting = {job.status.fileno(): job for job in self.jobs.values()}
            listen = [self.control.fileno(), self.wake_read, *waiting]
            ready, _, _ = select.select(listen, [], [], _LOOK_S if self.jobs else None)
            self._look_at_jobs()
            if self.wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    while os.read(self.wake_read, 4096):
                        pass
                self._reap()
            for descriptor in ready:
                job = waiting.get(descriptor)
                if job is not None and job.pid in self.jobs:
                    self._kill(job)
            if self.control.fileno() in ready and not self._accept():
                break
        for job in list(self.jobs.values()):
            self._kill(job)
        self._kill_strays(all_children=True)

    def _look_at_jobs(self) -> None:
        """Kill jobs that have made too many processes (limits on their number do not hold for root) or use too much
        memory (a limit on addresses is impossible beside CUDA, which maps far more than it uses)."""
        now = time.monotonic()
        if not self.jobs or now < self.looked_at + _LOOK_S:
            return
        self.looked_at = now
        sessions = isolate.sessions() if self.alone else {pid: [pid] for pid in self.jobs}
        for session, pids in sessions.items():
            if len(pids) > _MOST_PROCESSES:
                self._end(session, pids)
        own = isolate.resident("self")  # which a job shares until it writes

        def used(pids: list[int]) -> int:
            return sum(max(0, isolate.resident(pid) - own) for pid in pids)

        limits = [job.resident_bytes for job in self.jobs.values() if job.resident_bytes is not None]
        left = {s: pids for s, pids in sessions.items() if s not in self.jobs and s != os.getsid(0)}
        if limits and used([p for pids in left.values() for p in pids]) > min(limits):
            for session, pids in left.items():  # they have left their job's session: whose they are nobody knows
                self._end(session, pids)
        for job in list(self.jobs.values()):
            most = job.resident_bytes
            if most is not None and job.pid in self.jobs and used(sessions.get(job.pid, [])) > most:
                job.why = f"its processes used more than {most >> 20} MiB of memory"
                self._kill(job)

    def _end(self, session: int, pids: list[int]) -> None:
        """Kill a job, or processes that have left their job's session."""
        job = self.jobs.get(session)
        if job is not None:
            self._kill(job)
        elif session != os.getsid(0):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _kill(self, job: _Job) -> None:
        for kill in (os.killpg, os.kill):  # before the child called setsid there is no such group
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(job.pid, signal.SIGKILL)
        self._reap(block_on=job.pid)

    def _reap(self, block_on: int = 0) -> None:
        """Collect ended children. A job's process group is killed before its id can be used again."""
        while True:
            options = os.WEXITED | os.WNOWAIT
            try:
                kind = os.P_PID if block_on else os.P_ALL
                info = os.waitid(kind, block_on, options if block_on else options | os.WNOHANG)
            except ChildProcessError:
                return
            if info is None:
                return
            job = self.jobs.pop(info.si_pid, None)
            if job is None:
                os.waitpid(info.si_pid, 0)
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(job.pid, signal.SIGKILL)
            _, status = os.waitpid(job.pid, 0)
            self._kill_strays()
            shutil.rmtree(job.directory, ignore_errors=True)
            with contextlib.suppress(OSError):
                told = {"code": os.waitstatus_to_exitcode(status), "why": job.why}
                job.status.send(json.dumps(told).encode())
            job.status.close()
            if block_on:
                return

    def _kill_strays(self, all_children: bool = False) -> None:
        """Kill children that are no job's: orphans of ended jobs, whatever session they hide in."""
        for _ in range(50):  # killing one may hand us its own children
            strays = [p for p in isolate.children() if all_children or p not in self.jobs]
            if not strays:
                return
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _accept(self) -> bool:
        try:
            message, ancillary, _, _ = self.control.recvmsg(CONTROL_BYTES, socket.CMSG_LEN(12))
        except OSError:
            return False
        if not message:
            return False
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        data_fd, output_fd, status_fd = descriptors
        self.count += 1
        directory = self.workdir / f"job-{self.count}"
        directory.mkdir(0o700)
        limits = json.loads(message)
        pid = os.fork()
        if pid == 0:
            self._become_child(limits, data_fd, output_fd, status_fd, directory)
        os.close(data_fd)
        os.close(output_fd)
        self.jobs[pid] = _Job(pid, socket.socket(fileno=status_fd), directory, limits["resident_bytes"])
        return True

    def _become_child(
        self, limits: dict[str, Any], data_fd: int, output_fd: int, status_fd: int, directory: Path
    ) -> NoReturn:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.control.close()
            for job in self.jobs.values():
                job.status.close()
            os.close(status_fd)
            os.close(self.wake_read)
            os.close(self.wake_write)
            os.dup2(output_fd, 1)
            os.dup2(output_fd, 2)
            os.close(output_fd)
            connection = socket.socket(fileno=data_fd)
            _confine(limits, directory, self.flavour)
            code = _run_job(connection)
        except BaseException:
            traceback.print_exc()
            code = 70
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _confine(limits: dict[str, Any], directory: Path, flavour: str) -> None:
    isolate.die_with_parent()
    isolate.own_scratch(str(directory), limits["file_bytes"])
    if flavour == "plain":
        isolate.own_scratch("/dev/shm", limits["file_bytes"])  # what lies there is memory that nobody would count
    os.chdir(directory)
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
    isolate.limit_resources(limits["cpu_s"], limits["memory_bytes"], limits["file_bytes"])
    writable = [str(directory), "/dev/null", "/dev/zero"]
    if flavour != "interpret":
        writable.append(os.environ["TRITON_CACHE_DIR"])
    if flavour == "plain":  # CUDA writes to its own process's entries; only the namespace's processes are there
        writable += ["/dev/shm", "/proc"]
    isolate.forbid_writes_outside([*writable, *map(str, Path("/dev").glob("nvidia*"))])
    if syscalls.available():
        syscalls.forbid_calls(**_FILTERS[flavour])


def _run_job(connection: socket.socket) -> int:
    from klineage.gate import wire

    request = wire.receive(connection, _REQUEST_BYTES)
    try:
        module, _, name = request["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        chunks = wire.encode({"outcome": "ok", "value": function(request["payload"])})
    except SystemExit as error:
        chunks = wire.encode({"outcome": "exited", "error": f"SystemExit: {_line(error)}", "traceback": ""})
    except BaseException as error:  # whatever a candidate raises is its outcome
        kind = "".join(c for c in type(error).__name__ if c.isprintable())
        answer = {"outcome": "error", "error": f"{kind}: {_line(error)}", "traceback": _trace(error)}
        chunks = wire.encode(answer)
    for chunk in chunks:
        connection.sendall(chunk)
    return 0


def _line(error: BaseException) -> str:
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return (lines[0] if lines else "(no message)")[:_LINE]
    except BaseException:
        return "(its message cannot be read)"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))[-20_000:]
    except BaseException:
        return ""


def _import_flavour(flavour: str) -> None:
    import torch
    import triton  # noqa: F401  # pyright: ignore[reportUnusedImport]

    torch.set_num_threads(1)
    for name in FLAVOURS.get(flavour, ()):
        if importlib.util.find_spec(name) is not None:
            module = importlib.import_module(name)
            getattr(module, "warm_up", lambda: None)()


def main() -> None:
    """Enter namespaces, import, report ready, serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    flavour = sys.argv[2]
    wrapped = os.environ.pop("KLINEAGE_IN_BUBBLEWRAP", "")
    inside = ["bubblewrap", "user", "pid", "net", "ipc", "mount", "proc"]
    protections = inside if wrapped else list(isolate.enter_namespaces())
    if "pid" in protections and not wrapped:
        first = os.fork()
        if first:  # stay only to end with the first process of the namespace
            control.close()
            _, status = os.waitpid(first, 0)
            os._exit(abs(os.waitstatus_to_exitcode(status)) & 0x7F)
        isolate.die_with_parent()
        if "mount" in protections and isolate.mount_own_proc():
            protections.append("proc")
    if isolate.landlock_version() >= 1:
        protections.append("landlock")
    if syscalls.available():
        protections.append("seccomp")
    isolate.adopt_orphans()
    _import_flavour(flavour)
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"ready": True, "isolation": protections}).encode())
    workdir = Path.cwd()
    _Server(control, workdir, flavour, "proc" in protections).serve()
    shutil.rmtree(workdir, ignore_errors=True)  # the parent does so too, unless it was killed


if __name__ == "__main__":
    main()
