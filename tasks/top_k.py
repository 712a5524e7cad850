"""Top-k over a vocabulary: the k largest of each row, largest first, with their places."""

import torch

from klineage.task.inputs import bench_case, check_cases, dtype_of

NAME = "top_k"
DESCRIPTION = "the k largest values of each row in falling order, and their indices"


def reference(x, k):
    return torch.topk(x, k, dim=-1)


def make_inputs(case, generator):
    """Distinct values in each row, so that the indices are decided: a shuffled, unevenly spaced ladder of fp32."""
    m, n = case["m"], case["n"]
    steps = torch.rand((m, n), generator=generator) + 0.5
    ladder = steps.cumsum(-1, dtype=torch.float64)
    ladder = (ladder / n - 0.5 + case.get("mean", 0.0)) * case.get("spread", 8.0)
    order = torch.rand((m, n), generator=generator).argsort(-1)
    if case.get("sorted"):  # the largest first, or last: nothing is left to a lucky chunk
        order = torch.arange(n).expand(m, n) if case["sorted"] > 0 else torch.arange(n - 1, -1, -1).expand(m, n)
    return ladder.to(dtype_of(case)).gather(-1, order), case["k"]


def reduction(_case):
    return 1


def work(case):
    m, n, k = case["m"], case["n"], case["k"]
    return m * n, m * n * dtype_of(case).itemsize + m * k * (dtype_of(case).itemsize + 8)


CASES = [
    *check_cases(
        (
            {"m": 1, "n": 1, "k": 1},
            {"m": 3, "n": 33, "k": 33},
            {"m": 2, "n": 127, "k": 5, "mean": -3.0},
            {"m": 2, "n": 4095, "k": 64, "sorted": 1},
            {"m": 1, "n": 4097, "k": 63, "sorted": -1},
            {"m": 2, "n": 8192, "k": 50, "mean": 3.0},
            {"m": 3, "n": 9001, "k": 64},
        ),
        dtypes=("fp32",),
        layouts=("contiguous",),
        values=("normal",),
    ),
    bench_case(m=64, n=128256, k=64, dtype="fp32"),
    bench_case(m=512, n=32000, k=50, dtype="fp32"),
]
EXPERT = "kernels/top_k.py"
NAIVE = "kernels/top_k_naive.py"
