"""Logarithm of the sigmoid, element by element, as linear attention takes its gates."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "log_sigmoid"
DESCRIPTION = "log(1 / (1 + exp(-x))), element by element"


def reference(x):
    return F.logsigmoid(x)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return 4 * elements, 2 * elements * dtype_of(case).itemsize


def expert_facts(_arch):
    """What the package asks of the device, and what its adapter sees to."""
    return {
        "IS_AMD": False,
        "IS_INTEL": False,
        "autotune_cache_kwargs": {},
        "x.ndim == 0": False,
        "x.is_contiguous()": True,
        "torch.compiler.is_compiling()": False,
    }


CASES = [*row_cases("fp16", "fp16", "fp16", "bf16", "fp32"), bench_case(m=8192, n=8192)]
EXPERT = "fla.modules.activations.ops:logsigmoid_fwd"
EXPERT_DECORATORS = {"dispatch": ""}
EXPERT_RUN = """
def run(x):
    return logsigmoid_fwd(x.contiguous())
"""
