"""SwiGLU's elementwise part: silu(gate) * up."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "swiglu"
DESCRIPTION = "silu(gate) * up, element by element"


def reference(gate, up):
    return F.silu(gate) * up


def make_inputs(case, generator):
    shape = (case["m"], case["n"])
    return tensor(shape, case, generator), tensor(shape, case, generator)


def work(case):
    elements = case["m"] * case["n"]
    return 5 * elements, 3 * elements * dtype_of(case).itemsize


def expert_facts(arch):
    """What the package asks of the device: it schedules Blackwell otherwise."""
    return {"infer_device_arch()": "blackwell" if arch >= 100 else "hopper" if arch >= 90 else "ampere_ada"}


CASES = [*row_cases("fp16", "fp16", "fp16", "bf16", "fp32", scale=16.0), bench_case(m=8192, n=14336)]
EXPERT = "liger_kernel.ops.swiglu:swiglu_forward"
EXPERT_RUN = """
def run(gate, up):
    return swiglu_forward(gate.contiguous(), up.contiguous())[2]
"""
