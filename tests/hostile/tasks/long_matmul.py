"""A product with a long inner dimension (K = 8192): half-precision accumulation loses what comes late."""

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "long_matmul"
DESCRIPTION = "a @ b with fp32 accumulation over 8192 terms"


def reference(a, b):
    return a @ b


def make_inputs(case, generator):
    return tensor((case["m"], case["k"]), case, generator), tensor((case["k"], case["n"]), case, generator, axis=0)


def reduction(case):
    return case["k"]


def work(case):
    m, n, k = case["m"], case["n"], case["k"]
    return 2 * m * n * k, (m * k + k * n + m * n) * dtype_of(case).itemsize


DIMS = ({"m": 16, "n": 17, "k": 8192}, {"m": 33, "n": 31, "k": 129})
CASES = [
    *check_cases(DIMS, values=("positive", "normal"), layouts=("contiguous",), fresh=1),
    bench_case(m=1024, n=1024, k=8192),
]
NAIVE = "kernels/long_matmul.py"
