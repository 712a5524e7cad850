"""Attention forward (scaled dot product, causal or full, grouped query heads)."""

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "attention"
DESCRIPTION = "softmax(q k^T / sqrt(d), causal or not) v with fewer key than query heads"


def reference(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def make_inputs(case, generator):
    b, h, g, n, d = (case[x] for x in ("b", "h", "g", "n", "d"))
    query = tensor((b, h, n, d), case, generator)
    keys = (tensor((b, h // g, n, d), case, generator, layout="contiguous") for _ in range(2))
    return query, *keys, bool(case["causal"])


def reduction(case):
    return case["n"]


def work(case):
    b, h, g, n, d = (case[x] for x in ("b", "h", "g", "n", "d"))
    pairs = n * (n + 1) // 2 if case["causal"] else n * n
    return 4 * b * h * pairs * d, (2 * b * h + 2 * b * (h // g)) * n * d * dtype_of(case).itemsize


def _backend(backend):
    def call(q, k, v, causal):
        with sdpa_kernel(backend):
            return reference(q, k, v, causal)

    return call


VENDORS = {
    "torch flash": _backend(SDPBackend.FLASH_ATTENTION),
    "torch cudnn": _backend(SDPBackend.CUDNN_ATTENTION),
}
CASES = [
    *check_cases(
        (
            {"b": 1, "h": 1, "g": 1, "n": 1, "d": 64, "causal": 0},
            {"b": 1, "h": 2, "g": 2, "n": 31, "d": 64, "causal": 1},
            {"b": 2, "h": 2, "g": 1, "n": 65, "d": 64, "causal": 0},
            {"b": 1, "h": 4, "g": 4, "n": 129, "d": 64, "causal": 1},
            {"b": 1, "h": 2, "g": 1, "n": 127, "d": 128, "causal": 1},
            {"b": 1, "h": 1, "g": 1, "n": 257, "d": 128, "causal": 0},
            {"b": 1, "h": 2, "g": 2, "n": 256, "d": 64, "causal": 1},
        ),
        dtypes=("fp16",),
        values=("normal", "normal", "shifted", "normal", "constant", "normal", "normal"),
        layouts=("contiguous", "contiguous", "padded", "contiguous", "contiguous", "transposed", "contiguous"),
    ),
    bench_case(b=4, h=32, g=4, n=4096, d=128, causal=1),
    bench_case(b=4, h=32, g=1, n=4096, d=64, causal=0),
]
EXPERT = "kernels/attention.py"
