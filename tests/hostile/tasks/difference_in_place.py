"""The running difference of a vector, in place: programs that overlap must not overwrite what others still read."""

import torch

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "difference_in_place"
DESCRIPTION = "x[i] - x[i - 1] written over x, the first element kept"
IN_PLACE = (0,)


def reference(x):
    return torch.cat((x[:1], x[1:] - x[:-1]))


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
NAIVE = "kernels/difference_in_place.py"
