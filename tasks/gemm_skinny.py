"""Matrix product with few rows (a batch of tokens against a weight), bf16 and fp16: decided by memory, not by dots."""

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "gemm_skinny"
DESCRIPTION = "x @ w with 1 to 64 rows of x, fp32 accumulation"


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
    *check_cases(
        (
            {"m": 1, "n": 1, "k": 1},
            {"m": 1, "n": 129, "k": 257},
            {"m": 15, "n": 33, "k": 511},
            {"m": 17, "n": 127, "k": 65},
            {"m": 31, "n": 7, "k": 1031},
            {"m": 16, "n": 64, "k": 4096},
            {"m": 32, "n": 128, "k": 512},
        ),
        dtypes=("bf16", "fp16"),
        values=("normal", "shifted", "large", "spike", "normal", "stagnant", "normal"),
        layouts=("contiguous", "contiguous", "padded", "transposed", "contiguous", "contiguous", "contiguous"),
        scale=8.0,
    ),
    bench_case(m=16, n=8192, k=8192, dtype="bf16"),
    bench_case(m=64, n=4096, k=14336),
]
EXPERT = "kernels/gemm_skinny.py"
