"""A seccomp filter for workers: system calls that judging a kernel never needs are refused with an error.

Loaded by path in the server, before the package is imported (see zygote.py); imports nothing of it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from pathlib import Path

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ACTIONS = "/proc/sys/kernel/seccomp/actions_avail"
_X32 = 0x40000000

# x86_64 and aarch64 numbers, from the kernel's syscall tables; None: the architecture has no such call
_FOREIGN = {  # other processes, the network, namespaces, the kernel itself
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "io_uring_setup": (425, 425), "open_by_handle_at": (304, 265),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    "tkill": (200, 130), "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104),
    "reboot": (169, 142),
}  # fmt: skip
_HIDDEN_MEMORY = {"memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194)}  # in use, yet unmapped
_SOCKETS = ("socket", "socketpair", "connect", "bind", "listen")
_LOCAL = (1, 16)  # AF_UNIX, AF_NETLINK
_OWN_ONLY = {"kill": (62, 129), "tgkill": (234, 131)}  # signals: to this process alone, not to its neighbours
_NEW_PROCESSES = {  # threads among them
    "clone": (56, 220), "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "clone3": (435, 435),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def available() -> bool:
    """Whether the kernel filters system calls on this architecture."""
    try:
        return platform.machine() in _ARCHITECTURES and "errno" in Path(_ACTIONS).read_text()
    except OSError:
        return False


def forbid_calls(*, new_processes: bool, local_sockets: bool = False) -> bool:
    """Refuse foreign system calls from now on, for good; with ``new_processes`` also those that make processes or
    threads. ``local_sockets`` leaves sockets of this machine and memory that is not mapped (a GPU's driver may need
    them) and refuses sockets of the network. False where the kernel or the architecture does not allow it."""
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return False
    column, architecture = known
    calls = {**_FOREIGN, **(_NEW_PROCESSES if new_processes else {}), **({} if local_sockets else _HIDDEN_MEMORY)}
    numbers = {name: pair[column] for name, pair in calls.items() if not (local_sockets and name in _SOCKETS)}
    allowed: dict[int, tuple[int, ...]] = {pair[column]: (os.getpid(),) for pair in _OWN_ONLY.values()}
    if local_sockets:
        allowed[_FOREIGN["socket"][column]] = _LOCAL
    program = _program(architecture, {n: name for name, n in numbers.items() if n is not None}, allowed)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0


def _program(architecture: int, numbers: dict[int, str], allowed: dict[int, tuple[int, ...]]) -> bytes:
    """The filter as classic BPF: eight bytes an instruction (code, jump if true, jump if false, operand). ``allowed``
    are the values that the first argument of a call may have."""
    refuse = _step(_RETURN, 0, 0, _ERRNO | errno.EPERM)
    lines = [_step(_LOAD, 0, 0, 4), _step(_EQUAL, 1, 0, architecture), refuse, _step(_LOAD, 0, 0, 0)]
    lines += [_step(_AT_LEAST, 0, 1, _X32), refuse]
    for number, name in numbers.items():
        # without clone3 the C library falls back on clone, whose refusal it reports
        code = errno.ENOSYS if name == "clone3" else errno.EPERM
        lines += [_step(_EQUAL, 0, 1, number), _step(_RETURN, 0, 0, _ERRNO | code)]
    allow = _step(_RETURN, 0, 0, _ALLOW)
    for number, values in allowed.items():  # the first argument is at byte 16
        lines += [_step(_EQUAL, 0, 2 + 2 * len(values), number), _step(_LOAD, 0, 0, 16)]
        lines += [part for value in values for part in (_step(_EQUAL, 0, 1, value), allow)]
        lines.append(refuse)
    return b"".join([*lines, allow])


def _step(code: int, yes: int, no: int, operand: int) -> bytes:
    return struct.pack("HBBI", code, yes, no, operand)
