"""How figures read: three significant digits, a unit, and always where they come from."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.base import Provenance
from ..model.lineage import Effect, EffectSign


def time_text(us: float | None, mode: Provenance | None = None) -> str:
    """A time given in microseconds, in the unit that reads best, with its provenance when ``mode`` is given."""
    if us is None:
        return str(Provenance.UNAVAILABLE)
    if us >= 1e6:
        text = f"{us / 1e6:.3g} s"
    elif us >= 1e3:
        text = f"{us / 1e3:.3g} ms"
    else:
        text = f"{us:.3g} us"
    return f"{text} ({mode})" if mode else text


def bytes_text(count: float) -> str:
    """A size in bytes with a binary prefix."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def provenance_of(effects: Sequence[Effect]) -> str:
    """``measured``, ``modelled``, both, or ``unavailable`` when there is no effect."""
    return " and ".join(sorted({str(e.provenance) for e in effects})) or str(Provenance.UNAVAILABLE)


def effect_text(effects: Sequence[Effect], speedup: float) -> str:
    """What taking the optimisation away did, in words: the mean, the range over contexts, the provenance."""
    if not effects:
        return "no effect known (unavailable)"
    sign = _sign(speedup)
    if sign is EffectSign.SLOWER:
        text = f"×{speedup:.2f} slower without it"
    elif sign is EffectSign.FASTER:
        text = f"×{1 / speedup:.2f} faster without it"
    else:
        text = f"neutral (×{speedup:.2f})"
    each = [e.speedup for e in effects]
    if len(each) > 1 and max(each) - min(each) > 0.01:
        text += f", ×{min(each):.2f} to ×{max(each):.2f} over {len(each)} contexts"
    return f"{text} ({provenance_of(effects)})"


def effect_style(speedup: float) -> str:
    """A colour: green where the optimisation pays, red where it harms."""
    return {EffectSign.SLOWER: "green", EffectSign.FASTER: "red", EffectSign.NEUTRAL: "yellow"}[_sign(speedup)]


def _sign(speedup: float) -> EffectSign:
    probe = Effect(context="", optimised_us=1.0, simpler_us=speedup, provenance=Provenance.MODELLED)
    return probe.sign
