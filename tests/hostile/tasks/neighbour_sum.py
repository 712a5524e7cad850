"""Each element plus the next one: a kernel that hands values to its neighbour through memory races."""

import torch

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "neighbour_sum"
DESCRIPTION = "x[i] + x[i + 1], the last element plus zero"


def reference(x):
    return x + torch.cat((x[1:], x.new_zeros(1)))


def make_inputs(case, generator):
    return (tensor((case["n"],), case, generator),)


def reduction(_case):
    return 2


def work(case):
    return case["n"], 2 * case["n"] * dtype_of(case).itemsize


CASES = [
    *check_cases(({"n": 33}, {"n": 1000}, {"n": 1024}), dtypes=("fp32",), values=("normal", "shifted"), fresh=1),
    bench_case(n=1 << 25, dtype="fp32"),
]
NAIVE = "kernels/neighbour_sum.py"
