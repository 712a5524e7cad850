"""y = 2 x + 1: the smallest task, for tests of the judge."""

from klineage.task.inputs import bench_case, dtype_of, tensor

NAME = "affine"
DESCRIPTION = "y = 2 x + 1, elementwise"


def reference(x):
    return 2 * x + 1


def make_inputs(case, generator):
    return (tensor((case["n"],), case, generator),)


def work(case):
    return 2 * case["n"], 2 * case["n"] * dtype_of(case).itemsize


CASES = [
    {"name": "odd", "n": 33, "dtype": "fp32"},
    {"name": "tail", "n": 257, "dtype": "fp16"},
    bench_case(n=2**22),
]
