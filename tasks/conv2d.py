"""Two-dimensional convolution, NCHW or NHWC memory, stride and padding, no bias."""

import torch
import torch.nn.functional as F

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "conv2d"
DESCRIPTION = "conv2d(x, w) with fp32 accumulation; channels first or last in memory"


def reference(x, w, stride, padding):
    return F.conv2d(x, w, stride=stride, padding=padding)


def make_inputs(case, generator):
    b, c, o, hw, r = (case[x] for x in ("b", "c", "o", "hw", "r"))
    x = tensor((b, c, hw, hw + case.get("extra", 0)), case, generator, axis=1, layout="contiguous")
    w = tensor((o, c, r, r), case, generator, axis=1, values="normal", layout="contiguous")
    if case["nhwc"]:
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    return x, w, case["stride"], case["padding"]


def reduction(case):
    return case["c"] * case["r"] ** 2


def _out(case, size):
    return (size + 2 * case["padding"] - case["r"]) // case["stride"] + 1


def work(case):
    b, c, o, hw, r = (case[x] for x in ("b", "c", "o", "hw", "r"))
    wide = hw + case.get("extra", 0)
    pixels = b * _out(case, hw) * _out(case, wide)
    return 2 * pixels * o * c * r * r, (b * c * hw * wide + o * c * r * r + pixels * o) * dtype_of(case).itemsize


CASES = [
    *check_cases(
        (
            {"b": 1, "c": 1, "o": 1, "hw": 1, "r": 1, "stride": 1, "padding": 0, "nhwc": 0},
            {"b": 2, "c": 3, "o": 5, "hw": 7, "r": 3, "stride": 1, "padding": 1, "nhwc": 0, "extra": 2},
            {"b": 1, "c": 17, "o": 33, "hw": 9, "r": 3, "stride": 2, "padding": 1, "nhwc": 1},
            {"b": 1, "c": 64, "o": 31, "hw": 8, "r": 1, "stride": 1, "padding": 0, "nhwc": 1, "extra": 1},
            {"b": 1, "c": 65, "o": 129, "hw": 5, "r": 3, "stride": 1, "padding": 0, "nhwc": 0},
            {"b": 2, "c": 64, "o": 128, "hw": 8, "r": 3, "stride": 1, "padding": 1, "nhwc": 1},
        ),
        dtypes=("fp16",),
        values=("normal", "shifted", "large", "spike", "normal", "normal"),
        scale=8.0,
    ),
    bench_case(b=32, c=256, o=256, hw=56, r=3, stride=1, padding=1, nhwc=1),
    bench_case(b=32, c=128, o=256, hw=56, r=3, stride=2, padding=1, nhwc=0),
]
EXPERT = "kernels/conv2d.py"
