"""What one program does, as numbers to add and scale."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counts:
    """Totals of one program."""

    bytes_loaded: float = 0.0
    bytes_stored: float = 0.0
    bytes_atomic: float = 0.0
    load_requests: float = 0.0
    load_sectors: float = 0.0
    store_requests: float = 0.0
    store_sectors: float = 0.0
    dot_flops: dict[str, float] = field(default_factory=dict[str, float])
    alu_lanes: float = 0.0
    mufu_lanes: float = 0.0
    reduce_lanes: float = 0.0
    reductions: float = 0.0
    load_rounds: float = 0.0
    loop_trips: float = 0.0
    outer_trips: float = 0.0  # trips of outermost loops that hold other loops

    def dot(self, kind: str, flops: float) -> None:
        """Add the flops of one dot."""
        self.dot_flops[kind] = self.dot_flops.get(kind, 0.0) + flops


NUMBERS = tuple(n for n in Counts.__dataclass_fields__ if n != "dot_flops")


def mean(samples: list[Counts]) -> Counts:
    """The average program."""
    share = 1.0 / len(samples)
    average = Counts()
    for name in NUMBERS:
        setattr(average, name, sum(getattr(c, name) for c in samples) * share)
    for sample in samples:
        for kind, flops in sample.dot_flops.items():
            average.dot(kind, flops * share)
    return average
