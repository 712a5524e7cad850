"""Variance of each row, with rows of 17 values around 5: a padding zero counted as data shows at once."""

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "row_variance"
DESCRIPTION = "population variance over each row of x"


def reference(x):
    return x.var(-1, unbiased=False)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    return 3 * case["m"] * case["n"], case["m"] * case["n"] * dtype_of(case).itemsize


DIMS = ({"m": 4, "n": 17}, {"m": 2, "n": 1000}, {"m": 3, "n": 256})
CASES = [
    *check_cases(DIMS, dtypes=("fp32",), values=("shifted", "shifted", "normal"), layouts=("contiguous",), fresh=1),
    bench_case(m=8192, n=4096, dtype="fp32"),
]
NAIVE = "kernels/row_variance.py"
