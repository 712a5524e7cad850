"""Gated delta rule forward, chunk by chunk: the linear attention of Gated DeltaNet (arXiv 2412.06464).

A state S of shape (d, v) decays by exp(g), forgets what it holds under the key and stores the value instead:
``S <- exp(g) S; S <- S + k^T beta (v - k S); o = scale q S``. Tensors are (batch, time, heads, features).
"""

import torch

from klineage.task.inputs import bench_case, check_cases, dtype_of, tensor

NAME = "gated_delta_rule"
DESCRIPTION = "S <- exp(g) S + k^T beta (v - k exp(g) S); o = q S / sqrt(d), over time, per head"


def reference(q, k, v, g, beta):
    scale = q.shape[-1] ** -0.5
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    query, key, value = (t.to(wide).transpose(1, 2) for t in (q, k, v))
    decay, gain = (t.to(wide).transpose(1, 2).unsqueeze(-1) for t in (g.exp(), beta))
    state = torch.zeros(*key.shape[:2], key.shape[-1], value.shape[-1], dtype=wide, device=q.device)
    steps = []
    for t in range(query.shape[2]):
        row = key[:, :, t]
        state = state * decay[:, :, t].unsqueeze(-1)
        change = gain[:, :, t] * (value[:, :, t] - (row.unsqueeze(-1) * state).sum(-2))
        state = state + row.unsqueeze(-1) * change.unsqueeze(-2)
        steps.append((query[:, :, t].unsqueeze(-1) * state).sum(-2) * scale)
    return torch.stack(steps, 1).to(v.dtype)


def make_inputs(case, generator):
    b, t, h, d, e = (case[x] for x in ("b", "t", "h", "d", "e"))
    q, k = (tensor((b, t, h, d), case, generator, layout="contiguous") for _ in range(2))
    k = k / k.float().square().sum(-1, keepdim=True).sqrt().to(k.dtype)
    v = tensor((b, t, h, e), case, generator, layout="contiguous")
    g = -torch.rand((b, t, h), generator=generator) * case.get("decay", 1.0) / 8
    beta = torch.rand((b, t, h), generator=generator).to(v.dtype)
    return q, k, v, g, beta


def reduction(case):
    return case["t"]


def work(case):
    b, t, h, d, e = (case[x] for x in ("b", "t", "h", "d", "e"))
    flops = 6 * b * t * h * d * e
    return flops, b * t * h * ((2 * d + 2 * e + 1) * dtype_of(case).itemsize + 4)


def _fla(q, k, v, g, beta):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return chunk_gated_delta_rule(q, k, v, g, beta, scale=q.shape[-1] ** -0.5)[0]


def expert_facts(arch):
    """What the package asks of the device and of its own environment when it is imported."""
    return {
        "IS_AMD": False,
        "IS_INTEL": False,
        "IS_NVIDIA": True,
        "IS_NVIDIA_BLACKWELL": 100 <= arch < 130,
        "IS_TF32_SUPPORTED": True,
        "IS_TMA_SUPPORTED": False,
        "check_shared_mem()": True,
        "FLA_TRIL_PRECISION": "ieee",
        "check_shared_mem('ampere')": arch in (80, 90, 100),
        "check_shared_mem('ada')": True,
        "check_shared_mem('hopper')": arch in (90, 100),
        "autotune_cache_kwargs": {},
        "BLACKWELL_8_WARP_RACE": False,
        "len(g.shape) == 3": True,
    }


VENDORS = {"fla": _fla}
CASES = [
    *check_cases(
        (
            {"b": 1, "t": 1, "h": 1, "d": 64, "e": 64},
            {"b": 1, "t": 31, "h": 2, "d": 64, "e": 64},
            {"b": 2, "t": 33, "h": 1, "d": 64, "e": 128},
            {"b": 1, "t": 63, "h": 1, "d": 128, "e": 64},
            {"b": 1, "t": 65, "h": 3, "d": 64, "e": 64},
            {"b": 1, "t": 129, "h": 1, "d": 128, "e": 128, "decay": 8.0},
            {"b": 1, "t": 128, "h": 2, "d": 64, "e": 64},
        ),
        dtypes=("bf16", "fp16", *("bf16",) * 5),
        values=("normal", "normal", "shifted", "normal", "spike", "normal", "normal"),
        layouts=("contiguous",),
    ),
    bench_case(b=4, t=4096, h=16, d=128, e=128, dtype="bf16"),
    bench_case(b=8, t=2048, h=8, d=64, e=64, dtype="bf16"),
]
EXPERT = "fla.ops.gated_delta_rule.chunk:chunk_gated_delta_rule_fwd"
# Its registry of other backends, its copies of strided inputs and its cache of tuned configurations are not the kernel.
EXPERT_DECORATORS = {"dispatch": "", "input_guard": "", "fla_cache_autotune": "triton.autotune"}
EXPERT_RUN = """
def run(q, k, v, g, beta):
    return chunk_gated_delta_rule_fwd(q, k, v, g, beta, q.shape[-1] ** -0.5, None, False)[1]
"""
