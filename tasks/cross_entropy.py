"""Cross entropy of logits with class indices, one loss per row."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, integers, row_cases, tensor

NAME = "cross_entropy"
DESCRIPTION = "logsumexp(logits) - logits[target] for each row, no reduction, no gradient"


def reference(logits, target):
    return F.cross_entropy(logits, target, reduction="none")


def make_inputs(case, generator):
    logits = tensor((case["m"], case["n"]), case, generator)
    return logits, integers((case["m"],), case["n"], generator)


def work(case):
    elements = case["m"] * case["n"]
    return 4 * elements, elements * dtype_of(case).itemsize + case["m"] * (8 + dtype_of(case).itemsize)


def expert_facts(arch):
    """What the package asks of the device: it schedules Blackwell otherwise."""
    return {"infer_device_arch()": "blackwell" if arch >= 100 else "hopper" if arch >= 90 else "ampere_ada"}


CASES = [*row_cases("fp32", "bf16", "fp32", "fp32", "fp16"), bench_case(m=4096, n=32000, dtype="bf16")]
EXPERT = "liger_kernel.ops.cross_entropy:cross_entropy_forward"
EXPERT_RUN = """
def run(logits, target):
    return cross_entropy_forward(logits.contiguous(), target, None, -100, 0.0, 0.0, "none", None, False)[0]
"""
