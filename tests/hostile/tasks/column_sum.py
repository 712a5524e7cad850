"""Sum of each column: programs that share a column must not race for it."""

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "column_sum"
DESCRIPTION = "sum over the rows of x, for each column"


def reference(x):
    return x.sum(0)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator, axis=0),)


def reduction(case):
    return case["m"]


def work(case):
    return case["m"] * case["n"], case["m"] * case["n"] * dtype_of(case).itemsize


DIMS = ({"m": 33, "n": 31}, {"m": 129, "n": 65}, {"m": 64, "n": 128})
CASES = [
    *check_cases(DIMS, dtypes=("fp32",), values=("shifted", "normal"), layouts=("contiguous",), fresh=1),
    bench_case(m=4096, n=4096, dtype="fp32"),
]
NAIVE = "kernels/column_sum.py"
