"""Matrix product in bf16, an oblong shape. No expert: starts from a naive kernel."""

from klineage.task.inputs import bench_case, dtype_of, matmul_cases, tensor

NAME = "matmul"
DESCRIPTION = "a @ b with fp32 accumulation"


def reference(a, b):
    return a @ b


def make_inputs(case, generator):
    return tensor((case["m"], case["k"]), case, generator), tensor((case["k"], case["n"]), case, generator, axis=0)


def reduction(case):
    return case["k"]


def work(case):
    m, n, k = case["m"], case["n"], case["k"]
    return 2 * m * n * k, (m * k + k * n + m * n) * dtype_of(case).itemsize


CASES = [*matmul_cases("bf16"), bench_case(m=2048, n=4096, k=1024, dtype="bf16")]
NAIVE = "kernels/matmul.py"
