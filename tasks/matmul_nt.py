"""Matrix product with the second factor transposed. No expert: starts from a naive kernel."""

from klineage.task.inputs import bench_case, dtype_of, matmul_cases, tensor

NAME = "matmul_nt"
DESCRIPTION = "a @ b^T with fp32 accumulation, as a linear layer stores its weight"


def reference(a, b):
    return a @ b.T


def make_inputs(case, generator):
    return tensor((case["m"], case["k"]), case, generator), tensor((case["n"], case["k"]), case, generator)


def reduction(case):
    return case["k"]


def work(case):
    m, n, k = case["m"], case["n"], case["k"]
    return 2 * m * n * k, (m * k + k * n + m * n) * dtype_of(case).itemsize


CASES = [*matmul_cases("bf16"), bench_case(m=4096, n=4096, k=1024, dtype="bf16")]
NAIVE = "kernels/matmul_nt.py"
