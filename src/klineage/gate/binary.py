# pyright: reportMissingTypeStubs=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What a cubin is made of: registers and stack from its ELF notes, instructions from nvdisasm, cached by code."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import json
import re
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ..errors import EnvironmentLackError, HarnessError

_TOOL_S = 60.0
_INSTRUCTION_BYTES = 16
_CACHE_VERSION = "3"
_NV_INFO_REGCOUNT, _NV_INFO_FRAME_SIZE, _NV_INFO_MIN_STACK = 0x2F, 0x11, 0x12
_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", re.M)
_SCHEDULING = re.compile(r"\s+[?&]\S.*$")  # "?trans5", "&req={1}": some versions print them for some targets
_OPCODE = re.compile(r"^(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Za-z0-9_.]*)")
_BRANCH = re.compile(r"\b(?:BRA|BRX|JMP|CALL)\S*.*?\b0x([0-9a-f]+)$")
_WIDE = {"LDG", "STG", "LDS", "STS", "LDGSTS", "LDL", "STL"}
_COUNTED = frozenset({
    "HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA", "QMMA", "DMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA", "LDTM",
    "STTM", "WARPGROUP", "LDG", "STG", "LDGSTS", "LDS", "STS", "LDSM", "STSM", "LDL", "STL", "LDC", "ULDC", "UTMALDG",
    "UTMASTG", "UBLKCP", "ATOM", "ATOMG", "ATOMS", "RED", "REDG", "BAR", "SYNCS", "SHFL", "MUFU", "FFMA", "FADD",
    "FMUL", "FMNMX", "HFMA2", "HADD2", "HMUL2", "IMAD", "BRA", "CALL",
})  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cubin:
    """The parts of a cubin that matter here. ``code`` is all instruction bytes, functions one after another."""

    registers: int
    stack_bytes: int
    code: bytes

    @property
    def code_hash(self) -> str:
        """Hash of the instruction bytes alone: debug information and names do not count."""
        return hashlib.sha256(self.code).hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class Sass:
    """Disassembled code: instruction mix ("total" without padding, "loop" in innermost loops), and its hash with
    addresses taken out. ``loop_*`` count one warp's work in one pass over the innermost loops (over the whole code
    when it has no loop)."""

    mix: dict[str, int]
    hash: str
    loop_instructions: int
    loop_mma_flops: int
    loop_load_bytes: int
    loop: dict[str, int]  # mix of the innermost loops with "loops", "mma_flops", "load_bytes"; empty without loops


NOT_READ = Sass({}, "", 0, 0, 0, {})  # of code that was not disassembled


def parse_cubin(data: bytes) -> Cubin:
    """Read a 64-bit cubin ELF image. Raises ValueError when it is not one."""
    try:
        return _parse_elf(data)
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise ValueError(f"not a cubin: {error}") from None


def _parse_elf(data: bytes) -> Cubin:
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF header")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_bytes) for i in range(count)]
    names_at = sections[names_index][4]
    code: list[bytes] = []
    facts: dict[int, int] = {}
    for name_at, _, _, _, offset, size, *_ in sections:
        start = names_at + name_at
        name = data[start : data.index(b"\0", start)].decode()
        if name.startswith(".text."):
            code.append(data[offset : offset + size])
            if sum(map(len, code)) > len(data):
                raise ValueError("sections overlap")
        elif name == ".nv.info":
            facts = _parse_info(data[offset : offset + size])
    stack = max(facts.get(_NV_INFO_FRAME_SIZE, 0), facts.get(_NV_INFO_MIN_STACK, 0))
    return Cubin(facts.get(_NV_INFO_REGCOUNT, 0), stack, b"".join(code))


def _parse_info(info: bytes) -> dict[int, int]:
    """Largest value per attribute over all functions, of the attributes that are (symbol, value) pairs."""
    found: dict[int, int] = {}
    at = 0
    while at + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind != 0x04:  # the value is the two bytes just read
            continue
        if size == 8:
            _, value = struct.unpack_from("<II", info, at)
            found[attribute] = max(found.get(attribute, 0), value)
        at += size
    return found


@dataclasses.dataclass
class _Request:
    codes: list[bytes]
    texts: list[str] | None = None
    error: HarnessError | None = None


class Inspector:
    """Disassembles code once and remembers it, in memory and under ``directory``. Safe to call from several threads:
    what is asked for while nvdisasm runs goes through its next run together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "sass" / _CACHE_VERSION
        self._known: dict[str, Sass] = {}
        self._queues: dict[int, list[_Request]] = {}
        self._queueing, self._running = threading.Lock(), threading.Lock()

    def inspect(self, codes: Iterable[bytes], arch: int) -> list[Sass]:
        """The Sass of each piece of code, in order; those not yet known go through one run of nvdisasm.

        Raises HarnessError when nvdisasm refuses them.
        """
        keyed = [(_key(code, arch), code) for code in codes]
        missing = {key: code for key, code in keyed if self._lookup(key) is None}
        if missing:
            texts = self._texts(list(missing.values()), arch)
            for key, text in zip(missing, texts, strict=True):
                self._known[key] = sass = _read_sass(text)
                self._save(key, sass)
        return [self._known[key] for key, _ in keyed]

    def _texts(self, codes: list[bytes], arch: int) -> list[str]:
        request = _Request(codes)
        with self._queueing:
            self._queues.setdefault(arch, []).append(request)
        with self._running:
            if request.texts is None and request.error is None:
                with self._queueing:
                    batch = self._queues.pop(arch)
                _serve(batch, arch)
        if request.error is not None:
            raise request.error
        return request.texts or []

    def _lookup(self, key: str) -> Sass | None:
        if key not in self._known:
            with contextlib.suppress(OSError, ValueError, TypeError):
                self._known[key] = Sass(**json.loads(self._path(key).read_text()))
        return self._known.get(key)

    def _save(self, key: str, sass: Sass) -> None:
        path = self._path(key)
        # a cache that cannot be written costs time, never an answer
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
                json.dump(dataclasses.asdict(sass), file)
            Path(file.name).replace(path)

    def _path(self, key: str) -> Path:
        return self._directory / key[:2] / f"{key}.json"


def _serve(batch: list[_Request], arch: int) -> None:
    """Answer all requests, in one run where none spoils it for the others."""
    try:
        texts = iter(_disassemble([code for request in batch for code in request.codes], arch))
    except HarnessError as error:
        if len(batch) == 1:
            batch[0].error = error
            return
        for request in batch:
            _serve([request], arch)
        return
    for request in batch:
        request.texts = [next(texts) for _ in request.codes]


def _key(code: bytes, arch: int) -> str:
    import triton

    parts = f"{_CACHE_VERSION}/{arch}/{triton.__version__}/".encode()
    return hashlib.sha256(parts + code).hexdigest()[:32]


@cache
def tool(name: str) -> str:
    """Path of one of the binary tools that Triton's wheel carries. Raises EnvironmentLackError."""
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not path.exists():
        raise EnvironmentLackError(f"{name} is not in the triton package", "install triton from its official wheel")
    return str(path)


def _disassemble(codes: list[bytes], arch: int) -> list[str]:
    """One listing per piece of code.

    The tool spends half a second on starting, whatever the size: all code goes in one raw image.
    """
    suffix = "a" if arch >= 90 else ""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(_padded(code) for code in codes))
        file.flush()
        command = [tool("nvdisasm"), "-ndf", "-b", f"SM{arch}{suffix}", file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=False)
        except subprocess.TimeoutExpired:
            raise HarnessError(f"nvdisasm took longer than {_TOOL_S:.0f} s") from None
    if done.returncode != 0:
        raise HarnessError(f"nvdisasm failed: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
    lines = [(int(address, 16), text) for address, text in _LINE.findall(done.stdout)]
    texts: list[str] = []
    start, index = 0, 0
    for code in codes:
        end = start + len(code)
        own: list[str] = []
        while index < len(lines) and lines[index][0] < start:
            index += 1  # padding
        while index < len(lines) and lines[index][0] < end:
            address, text = lines[index]
            own.append(f"{address - start:x} {_relative(text, start)}")
            index += 1
        texts.append("\n".join(own))
        start += len(_padded(code))
    return texts


def _padded(code: bytes) -> bytes:
    """Code of whole instructions, so that what follows it is read aright."""
    return code + bytes(-len(code) % _INSTRUCTION_BYTES)


def _relative(text: str, start: int) -> str:
    text = _SCHEDULING.sub("", text)
    branch = _BRANCH.search(text)
    if branch is None:
        return text
    return f"{text[: branch.start(1)]}{int(branch.group(1), 16) - start:x}"


def _read_sass(text: str) -> Sass:
    code = [(int(address, 16), line) for address, line in (x.split(" ", 1) for x in text.splitlines())]
    mix: collections.Counter[str] = collections.Counter()
    opcodes: list[str] = []
    for _, line in code:
        opcode = _OPCODE.match(line)
        opcodes.append(opcode.group(1) if opcode else "")
        _count(opcodes[-1], mix)
    body, loops = _innermost(code)
    mix["loop"] = len(body)
    loop: collections.Counter[str] = collections.Counter()
    for i in body:
        _count(opcodes[i], loop)
    if body:
        loop["loops"] = loops
        loop["mma_flops"] = sum(_mma_flops(opcodes[i]) for i in body)
        loop["load_bytes"] = sum(_load_bytes(opcodes[i]) for i in body)
    body = body or set(range(len(code)))
    normal = "\n".join(line for (_, line), opcode in zip(code, opcodes, strict=True) if opcode != "NOP")
    return Sass(
        mix=dict(mix),
        hash=hashlib.sha256(normal.encode()).hexdigest()[:16],
        loop_instructions=sum(opcodes[i] != "NOP" for i in body),
        loop_mma_flops=sum(_mma_flops(opcodes[i]) for i in body),
        loop_load_bytes=sum(_load_bytes(opcodes[i]) for i in body),
        loop=dict(loop),
    )


def _count(opcode: str, mix: collections.Counter[str]) -> None:
    if opcode in ("NOP", ""):
        return
    base, *parts = opcode.split(".")
    mix["total"] += 1
    if base in _COUNTED:
        mix[base] += 1
    if base in _WIDE:
        width = next((w for w in ("128", "64") if w in parts), None)
        if width:
            mix[f"{base}.{width}"] += 1
        if base == "LDG":
            mix.update(f"LDG.{hint}" for hint in ("EL", "EF") if hint in parts)  # evict last, evict first


def _innermost(code: list[tuple[int, str]]) -> tuple[set[int], int]:
    """Indices of the instructions in loops that hold no other loop, and the number of these loops. The trap after
    the end, a branch to itself, is no loop."""
    at = {address: i for i, (address, _) in enumerate(code)}
    loops: list[tuple[int, int]] = []
    for i, (_, line) in enumerate(code):
        branch = _BRANCH.search(line)
        if branch and "CALL" not in line:
            target = at.get(int(branch.group(1), 16))
            if target is not None and target < i:
                loops.append((target, i))
    inner = [x for x in loops if not any(y != x and x[0] <= y[0] and y[1] <= x[1] for y in loops)]
    return {i for start, end in inner for i in range(start, end + 1)}, len(inner)


def _mma_flops(opcode: str) -> int:
    """Floating-point operations of one warp's share of a tensor-core instruction; 0 where the opcode does not say."""
    base, *parts = opcode.split(".")
    if base in ("HGMMA", "QGMMA", "IGMMA") and parts:
        shape = re.fullmatch(r"(\d+)x(\d+)x(\d+)", parts[0])
        if shape:
            m, n, k = map(int, shape.groups())
            return 2 * m * n * k // 4  # one instruction for four warps
    if base in ("HMMA", "IMMA", "QMMA") and parts:
        shape = re.fullmatch(r"(16|8)(8)(\d+)", parts[0])
        if shape:
            m, n, k = map(int, shape.groups())
            return 2 * m * n * k
    return 0


def _load_bytes(opcode: str) -> int:
    """Bytes one warp asks of global memory with this instruction."""
    base, *parts = opcode.split(".")
    if base not in ("LDG", "LDGSTS"):
        return 0
    per_lane = 16 if "128" in parts else 8 if "64" in parts else 2 if "U16" in parts else 1 if "U8" in parts else 4
    return 32 * per_lane


def spill_bytes(log: str) -> int | None:
    """Bytes of spill stores and spill loads that ``ptxas -v`` reported, all functions together; None when it said
    nothing of them."""
    found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    return sum(int(stores) + int(loads) for stores, loads in found) if found else None


def first_error(log: str) -> str:
    """The one line of a ptxas log that says what went wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for mark in ("error", "fatal"):
        for line in lines:
            if re.search(rf"\b{mark}\b\s*:", line):
                return re.sub(r"^ptxas \S*/?\S*, ", "", line)[:300]
    return lines[0][:300] if lines else "no message"
