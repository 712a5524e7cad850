"""Facts of the calibration variants, without a GPU: KLineage's own compile and trace jobs.

    python benchmarks/calibration_facts.py out.json [part of a variant's name]

Adds to ``out.json`` what is missing there: {variant: {"reports": [LaunchReport], "traffic": [Traffic]}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from calibration_variants import Spec, Variant, variants

from klineage.gate.compile import compile_kernel
from klineage.gate.profile import TRACE_JOB
from klineage.gate.workers import Limits, Zygote
from klineage.model import Kernel, LaunchReport, Target, Traffic, target

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
LIMITS = Limits(wall_s=600)


def input_spec(spec: Spec) -> tuple[Any, ...]:
    """A variant's input as the jobs take it."""
    dtype, shape = spec
    if dtype.startswith("label:"):
        generator = torch.Generator().manual_seed(0)
        return ("data", torch.randint(0, int(dtype.split(":")[1]), shape, generator=generator))
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return ("tensor", list(shape), strides, DTYPES[dtype])


def facts(
    variant: Variant, compiler: Zygote, interpreter: Zygote, where: Target
) -> tuple[list[LaunchReport], list[Traffic]]:
    """Compiled launches and their traced traffic. Raises RuntimeError when a job fails."""
    kernel = Kernel(source=variant.module_text, entry="run")
    specs = [input_spec(spec) for spec in variant.inputs]
    compiled = compile_kernel(compiler, kernel, [("bench", specs)], where, limits=LIMITS)
    if not compiled.ok:
        raise RuntimeError(f"{variant.name} does not compile: {compiled.reason}")
    reports = compiled.launches["bench"]
    payload = {
        "source": kernel.source,
        "entry": kernel.entry,
        "target": where.name,
        "inputs": specs,
        "waves": [where.sms * max(1, r.occupancy.blocks_per_sm) for r in reports],
        "configs": [r.config for r in reports],
    }
    traced = interpreter.run(TRACE_JOB, payload, LIMITS)
    if traced.value is None or traced.value.get("error"):
        raise RuntimeError(f"{variant.name} cannot be traced: {traced.error or (traced.value or {}).get('error')}")
    launches = traced.value["launches"]
    if [x["kernel"] for x in launches] != [r.kernel for r in reports]:
        raise RuntimeError(f"{variant.name}: traced launches are not the compiled ones")
    return reports, [Traffic.model_validate(x["traffic"]) for x in launches]


def main(path: Path, wanted: str = "", where: str = "sm_90") -> None:
    """Compute what ``path`` lacks and write it back after each variant."""
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    with Zygote("compile") as compiler, Zygote("interpret") as interpreter:
        for variant in variants():
            if variant.name in record or wanted not in variant.name:
                continue
            try:
                reports, traffics = facts(variant, compiler, interpreter, target(where))
            except RuntimeError as problem:
                print(problem, flush=True)
                continue
            record[variant.name] = {
                "reports": [r.model_dump(mode="json", exclude={"compile_s"}) for r in reports],
                "traffic": [t.model_dump(mode="json") for t in traffics],
            }
            path.write_text(json.dumps(record))
            print(variant.name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
