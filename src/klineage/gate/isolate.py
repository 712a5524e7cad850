"""Confinement of worker processes on Linux: namespaces, Landlock, resource limits. Each part is used where the
kernel allows it and named when it is in force, so that a report can say what protected the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_CLONE_NEWNET, _CLONE_NEWIPC = 0x40000000, 0x08000000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_MS_NOSUID_NODEV, _MS_NOSUID_NODEV_NOEXEC, _MS_REC_PRIVATE = 0x6, 0xE, 0x44000
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture

_PROCESSES = 256  # enough for every job of a server and its compilers

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that made it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter_namespaces() -> tuple[str, ...]:
    """Move this single-threaded process into new namespaces, the most the kernel allows.

    Returns the names of those in force; "pid" holds for children forked from now on.
    """
    uid, gid = os.getuid(), os.getgid()
    wanted = (
        (_CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWNS, ("pid", "net", "ipc", "mount")),
        (_CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET, ("pid", "net")),
        (_CLONE_NEWUSER | _CLONE_NEWNET, ("net",)),
    )
    for flags, names in wanted:
        if _libc.unshare(flags) == 0:
            with contextlib.suppress(OSError):
                Path("/proc/self/setgroups").write_text("deny")
            with contextlib.suppress(OSError):
                Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
                Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
            return ("user", *names)
    return ()


def mount_own_proc() -> bool:
    """Show only this PID namespace under /proc. For the first process of a new PID and mount namespace."""
    if _libc.mount(None, b"/", None, _MS_REC_PRIVATE, None) != 0:
        return False
    return _libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC, None) == 0


def own_scratch(directory: str, size_bytes: int) -> bool:
    """A memory file system of limited size over ``directory``, for this process and its descendants alone."""
    if _libc.unshare(_CLONE_NEWNS) != 0 or _libc.mount(None, b"/", None, _MS_REC_PRIVATE, None) != 0:
        return False
    options = f"size={size_bytes},mode=700,nr_inodes=65536".encode()
    return _libc.mount(b"klineage", directory.encode(), b"tmpfs", _MS_NOSUID_NODEV, options) == 0


def children() -> list[int]:
    """Process ids (as this process sees them) of all direct children, adopted orphans included."""
    # our id as the mounted /proc counts, which may be another namespace's
    me = str(Path("/proc/self").readlink())
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "status").read_text(errors="replace")
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if fields.get("PPid", "").strip() == me:
            found.append(int(fields.get("NSpid", fields["Pid"]).split()[-1]))
    return found


def sessions() -> dict[int, list[int]]:
    """Processes that /proc shows, by session id; ids as /proc counts them."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 (pathlib takes many times as long)
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123
                    after_name = file.read().rpartition(b")")[2].split()
                found.setdefault(int(after_name[3]), []).append(int(entry))
    return found


def resident(pid: int | str) -> int:
    """Bytes of memory that a process ("self": this one) has in use; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 (pathlib takes many times as long)
            pages = file.read().split()
        return int(pages[1]) * resource.getpagesize()
    return 0


def limit_resources(cpu_s: int, memory_bytes: int | None, file_bytes: int) -> None:
    """Set hard limits on CPU seconds, address space beyond what is mapped now, and size of files written."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if Path("/proc/self/uid_map").read_text().split()[2:] == ["1"]:  # counted in this namespace, not for all of a user
        resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    if memory_bytes is not None:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = mapped + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # out of memory: this process goes first


def landlock_version() -> int:
    """Version of the kernel's Landlock interface; 0 or less where there is none."""
    return _libc.syscall(_SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))


def forbid_writes_outside(writable: list[str]) -> bool:
    """Landlock: deny every file-system change outside ``writable`` (directories or device files).

    Holds for this process and its descendants, for good. False when the kernel lacks Landlock.
    """
    abi = landlock_version()
    if abi < 1:
        return False
    write_file, truncate = 1 << 1, 1 << 14 if abi >= 3 else 0
    # remove dir/file, make char/dir/reg/sock/fifo/block/sym: bits 4..12; refer (across directories): bit 13
    tree = (((1 << 9) - 1) << 4) | (1 << 13 if abi >= 2 else 0)
    handled = write_file | truncate | tree
    attributes = struct.pack("Q", handled)
    ruleset = _libc.syscall(_SYS_LANDLOCK_CREATE, attributes, ctypes.c_size_t(8), ctypes.c_uint(0))
    if ruleset < 0:
        return False
    try:
        for path in writable:
            _allow_beneath(ruleset, path, handled, write_file | truncate)
        if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        return _libc.syscall(_SYS_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint(0)) == 0
    finally:
        os.close(ruleset)


def _allow_beneath(ruleset: int, path: str, rights: int, file_rights: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = rights if Path(path).is_dir() else file_rights
            rule = struct.pack("=Qi", allowed, handle)
            _libc.syscall(_SYS_LANDLOCK_ADD, ruleset, ctypes.c_int(1), rule, ctypes.c_uint(0))
        finally:
            os.close(handle)
