"""Cosine similarity of the rows of two matrices. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "cosine_similarity"
DESCRIPTION = "sum(x y) / (max(|x|, eps) max(|y|, eps)) of each pair of rows"
EPS = 1e-6


def reference(x, y):
    return F.cosine_similarity(x, y, dim=-1, eps=EPS)


def make_inputs(case, generator):
    shape = (case["m"], case["n"])
    return tensor(shape, case, generator), tensor(shape, case, generator, values="normal")


def work(case):
    elements = case["m"] * case["n"]
    return 6 * elements, (2 * elements + case["m"]) * dtype_of(case).itemsize


CASES = [
    *row_cases(
        "fp32",
        "fp32",
        "fp16",
        values=("normal", "normal", "shifted", "normal", "normal", "normal", "shifted", "normal"),
    ),
    bench_case(m=16384, n=4096),
]
NAIVE = "kernels/cosine_similarity.py"
