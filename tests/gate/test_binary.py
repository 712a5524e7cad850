"""Reading cubins and their code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from klineage.errors import HarnessError
from klineage.gate import binary


@triton.jit
def add_loop(x, y, n, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(n):
        acc += tl.exp(tl.load(x + i * BLOCK + tl.arange(0, BLOCK)))
    tl.store(y + tl.arange(0, BLOCK), acc)


@triton.jit
def other_name(first, second, count, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)

    for k in range(count):
        total += tl.exp(tl.load(first + k * BLOCK + tl.arange(0, BLOCK)))

    tl.store(second + tl.arange(0, BLOCK), total)


def cubin_of(function: object, arch: int, block: int = 256) -> bytes:
    names = function.arg_names  # type: ignore[attr-defined]
    signature = dict(zip(names, ["*fp32", "*fp32", "i32", "constexpr"], strict=True))
    source = ASTSource(function, signature=signature, constexprs={"BLOCK": block})
    return triton.compile(source, target=GPUTarget("cuda", arch, 32)).asm["cubin"]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        yield


@pytest.fixture(scope="module")
def cubin() -> bytes:
    return cubin_of(add_loop, 90)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02" + b"\xff" * 200, b"x" * 500], ids=len)
def test_what_is_no_cubin_is_refused(data: bytes):
    with pytest.raises(ValueError, match="not a cubin"):
        binary.parse_cubin(data)


def test_every_truncation_is_refused_or_read(cubin: bytes):
    for size in range(0, len(cubin), 997):
        try:
            binary.parse_cubin(cubin[:size])
        except ValueError as error:
            assert "not a cubin" in str(error)


def test_registers_and_stack_agree_with_cuobjdump(cubin: bytes, tmp_path: Path):
    file = tmp_path / "x.cubin"
    file.write_bytes(cubin)
    command = [binary.tool("cuobjdump"), "--dump-resource-usage", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert match
    found = binary.parse_cubin(cubin)
    assert (found.registers, found.stack_bytes) == tuple(map(int, match.groups()))


def test_the_mix_and_the_loop(cubin: bytes, tmp_path: Path):
    (sass,) = binary.Inspector(tmp_path).inspect([binary.parse_cubin(cubin).code], 90)
    assert sass.mix["MUFU"] >= 2
    assert sass.mix["LDG"] >= 1 and sass.mix["STG"] >= 1
    assert 0 < sass.mix["loop"] < sass.mix["total"]
    assert sass.loop_load_bytes >= 256
    assert sass.loop_mma_flops == 0


def test_several_at_once_are_as_one_by_one(cubin: bytes, tmp_path: Path):
    codes = [binary.parse_cubin(c).code for c in (cubin, cubin_of(add_loop, 90, 1024), cubin)]
    together = binary.Inspector(tmp_path / "a").inspect(codes, 90)
    alone = [binary.Inspector(tmp_path / "b").inspect([c], 90)[0] for c in codes]
    assert together == alone
    assert together[0] == together[2] != together[1]


def test_names_and_lines_do_not_count(cubin: bytes):
    renamed = binary.parse_cubin(cubin_of(other_name, 90))
    assert renamed.code_hash == binary.parse_cubin(cubin).code_hash


@pytest.mark.parametrize("arch", [80, 89, 90, 100, 120])
def test_loops_are_found_on_every_target(arch: int, tmp_path: Path):
    (sass,) = binary.Inspector(tmp_path).inspect([binary.parse_cubin(cubin_of(add_loop, arch)).code], arch)
    assert sass.mix["loop"] > 0
    assert sass.loop_load_bytes > 0


def test_the_second_time_comes_from_the_cache(cubin: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = binary.parse_cubin(cubin).code
    first = binary.Inspector(tmp_path).inspect([code], 90)
    monkeypatch.setattr(binary, "tool", lambda _: "/not/there")
    assert binary.Inspector(tmp_path).inspect([code], 90) == first


def test_a_damaged_or_unwritable_cache_costs_only_time(cubin: bytes, tmp_path: Path):
    code = binary.parse_cubin(cubin).code
    first = binary.Inspector(tmp_path).inspect([code], 90)
    for file in tmp_path.rglob("*.json"):
        file.write_text("{broken")
    assert binary.Inspector(tmp_path).inspect([code], 90) == first
    (tmp_path / "file").write_text("")
    assert binary.Inspector(tmp_path / "file").inspect([code], 90) == first


def test_nvdisasm_that_fails_is_our_fault(cubin: bytes, tmp_path: Path):
    with pytest.raises(HarnessError, match="nvdisasm failed"):
        binary.Inspector(tmp_path).inspect([binary.parse_cubin(cubin).code], 7)


def test_spill_bytes():
    assert binary.spill_bytes("") is None
    log = "    8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\nptxas info : Used 3 registers"
    assert binary.spill_bytes(log) == 40


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "no message"),
        (
            "\n`ptxas` stderr:\nptxas /tmp/x.ptx, line 40; error   : Not a name of any known instruction: 'no'\nmore",
            "line 40; error : Not a name of any known instruction: 'no'",
        ),
        ("ptxas fatal   : Ptx assembly aborted due to errors", "ptxas fatal : Ptx assembly aborted due to errors"),
        ("something else\nentirely", "something else"),
    ],
    ids=["nothing", "error", "fatal", "other"],
)
def test_the_line_that_matters(log: str, line: str):
    assert " ".join(binary.first_error(log).split()) == line
