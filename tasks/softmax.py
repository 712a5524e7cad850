"""Softmax over the rows of a matrix."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "softmax"
DESCRIPTION = "exp(x - max) / sum(exp(x - max)) over each row of x"


def reference(x):
    return F.softmax(x, dim=-1)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return 5 * elements, 2 * elements * dtype_of(case).itemsize


def expert_facts(_arch):
    """The package's block is the next power of two of n_cols, so its launcher never takes the loop over blocks."""
    return {"n_cols <= BLOCK_SIZE": True}


CASES = [*row_cases("fp32"), bench_case(m=8192, n=4096, dtype="fp32")]
EXPERT = "liger_kernel.ops.softmax:_softmax_forward"
EXPERT_RUN = """
def run(x):
    return _softmax_forward(x)[0]
"""
NAIVE = "kernels/softmax.py"
