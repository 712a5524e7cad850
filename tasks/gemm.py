"""Matrix product, square and off every tile, fp16 and bf16. Thin products: gemm_skinny."""

from klineage.task.inputs import bench_case, dtype_of, matmul_cases, tensor

NAME = "gemm"
DESCRIPTION = "x @ w, fp32 accumulation"


def reference(x, w):
    return x @ w


def make_inputs(case, generator):
    return tensor((case["m"], case["k"]), case, generator), tensor((case["k"], case["n"]), case, generator, axis=0)


def reduction(case):
    return case["k"]


def work(case):
    m, n, k = case["m"], case["n"], case["k"]
    return 2 * m * n * k, (m * k + k * n + m * n) * dtype_of(case).itemsize


VENDORS = {"cuBLAS": reference}
CASES = [
    *matmul_cases("fp16", "bf16"),
    bench_case(m=4096, n=4096, k=4096),
    bench_case(m=8192, n=2048, k=4096, dtype="bf16"),
    bench_case(m=4000, n=3000, k=5000),
]
EXPERT = "kernels/gemm.py"
