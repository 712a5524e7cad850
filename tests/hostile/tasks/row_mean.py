"""Mean of each row, with rows of 65,536 ones among the cases: a half-precision sum stops at 2048."""

import torch

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "row_mean"
DESCRIPTION = "mean over each row of x"


def reference(x):
    return x.mean(-1)


def make_inputs(case, generator):
    shape = (case["m"], case["n"])
    if case.get("values") == "ones":
        return (torch.ones(shape, dtype=dtype_of(case)),)
    return (tensor(shape, case, generator),)


def work(case):
    return case["m"] * case["n"], case["m"] * case["n"] * dtype_of(case).itemsize


DIMS = ({"m": 5, "n": 33}, {"m": 1, "n": 65536}, {"m": 3, "n": 1025})
CASES = [
    *check_cases(DIMS, values=("shifted", "ones", "normal"), layouts=("contiguous",), fresh=1),
    bench_case(m=8192, n=8192),
]
NAIVE = "kernels/row_mean.py"
