"""What the interpreter cannot show. A verdict reached with it carries these sentences."""

BLIND_SPOTS: tuple[str, ...] = (
    "Programs run one after another: a race is found only where two programs touch the same element in the cases run.",
    "An overlap in place is found only when a program overwrites an element that another has read or written.",
    "After its first atomic a program counts as synchronised, so a wrong use of locks or flags is not found.",
    "Warps and barriers inside a program do not exist: a missing debug_barrier is not found.",
    "TF32 dots drop the low mantissa bits of their operands; the hardware's internal rounding is not modelled.",
    "fp16 accumulation is rounded once per 16 terms of a dot and once per level of a sum's tree.",
    "The order of fp32 sums differs from the hardware's, so results agree to rounding, not to the bit.",
    "Approximate instructions (ex2.approx, fast_expf, ...) are computed exactly.",
    "Scalar arguments equal to 1 or divisible by 16 are not specialised as the compiler specialises them.",
    "Of an autotuned kernel only one configuration runs.",
)
