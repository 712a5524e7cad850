"""A verdict names what it cannot see for its kernel, and not what cannot matter to it."""

from __future__ import annotations

import pytest

from klineage.gate.interpreter.blind_spots import SPOTS, blind_spots
from klineage.model import LaunchReport, Occupancy


def launch(blocks: int = 8, arg: str = "n:i32", **sass: int) -> LaunchReport:
    return LaunchReport(
        kernel="k", grid=(blocks, 1, 1), num_warps=4, num_stages=3, arg_types=(arg,), smem_bytes=0, registers=32,
        spill_bytes=0, occupancy=Occupancy(blocks_per_sm=8, fraction=0.5, limiter="warps"), sass={"total": 9, **sass},
        sass_hash="x",
    )  # fmt: skip


def names(source: str, *launches: LaunchReport) -> set[str]:
    said = blind_spots(source, launches)
    return {spot.name for spot in SPOTS if spot.sentence in said}


COPY = "tl.store(y_ptr + i, tl.load(x_ptr + i))"


@pytest.mark.parametrize(
    ("name", "without", "with_it"),
    [
        ("races", (COPY, launch(blocks=1)), (COPY, launch(blocks=2))),
        ("in_place", (COPY, launch()), ("tl.store(x_ptr + i, tl.load(x_ptr + i) + 1)", launch())),
        ("locks", (COPY, launch()), ("tl.atomic_cas(lock, 0, 1)", launch())),
        ("locks", ("tl.atomic_cas(lock, 0, 1)", launch(blocks=1)), ("tl.atomic_xchg(lock, 0)", launch())),
        ("atomic_order", ("tl.atomic_max(p, x)", launch()), ("tl.atomic_add(p, x)", launch())),
        ("barriers", (COPY, launch()), ("tl.debug_barrier()", launch())),
        ("half_accumulation", ("acc = tl.zeros((8, 8), dtype=tl.float32)", launch()),
         ("acc = tl.zeros((8, 8), dtype=tl.float16)", launch())),
        ("tf32", ("tl.dot(a, b)", launch(HMMA=3)), ('tl.dot(a, b, input_precision="tf32")', launch())),
        ("approximations", (COPY, launch()), (COPY, launch(**{"MUFU.EX2": 2}))),
        ("libdevice", (COPY, launch()), ("libdevice.erf(x)", launch())),
        ("fused_multiply_add", (COPY, launch()), (COPY, launch(FFMA=4))),
        ("inline_assembly", (COPY, launch()), ("tl.inline_asm_elementwise('', '', [])", launch())),
        ("integer_overflow", (COPY, launch()), ("tl.assume(n > 0)", launch())),
        ("specialisation", (COPY, launch()), (COPY, launch(arg="n:i32/16"))),
        ("configurations", (COPY, launch()), ("@triton.autotune(configs=[])", launch())),
        ("sum_order", (COPY, launch()), ("tl.sum(x, axis=0)", launch())),
        ("fp8", (COPY, launch()), ("x.to(tl.float8e4nv)", launch())),
        ("streams", (COPY, launch()), ("torch.cuda.stream(s)", launch())),
    ],
)  # fmt: skip
def test_a_sentence_appears_only_when_it_can_matter(name, without, with_it) -> None:
    assert name not in names(*without)
    assert name in names(*with_it)


def test_every_spot_has_a_row_in_the_documentation() -> None:
    from pathlib import Path

    text = (Path(__file__).parents[3] / "docs" / "interpreter_limits.md").read_text()
    assert [s.name for s in SPOTS if f"| `{s.name}` |" not in text] == []


def test_what_always_holds_is_always_said() -> None:
    assert names(COPY, launch(blocks=1)) == {"host_process"}
