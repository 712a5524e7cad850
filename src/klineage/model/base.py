"""The base of every domain value: frozen, no unknown fields, no I/O."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Provenance(StrEnum):
    """Where a figure comes from."""

    MEASURED = "measured"
    MODELLED = "modelled"
    UNAVAILABLE = "unavailable"


class Figure(Frozen):
    """A number with its unit and where it comes from.

    ``value`` is None exactly when the provenance is ``unavailable``.
    """

    value: float | None
    unit: str
    provenance: Provenance

    def model_post_init(self, context: Any, /) -> None:
        if (self.value is None) != (self.provenance is Provenance.UNAVAILABLE):
            raise ValueError("a figure has a value exactly when it is not 'unavailable'")

    def __str__(self) -> str:
        return "unavailable" if self.value is None else f"{self.value:.4g} {self.unit} ({self.provenance})"


def modelled(value: float, unit: str) -> Figure:
    """A figure computed by the performance model."""
    return Figure(value=value, unit=unit, provenance=Provenance.MODELLED)


def measured(value: float, unit: str) -> Figure:
    """A figure read from hardware."""
    return Figure(value=value, unit=unit, provenance=Provenance.MEASURED)


def unavailable(unit: str) -> Figure:
    """A figure this machine cannot give."""
    return Figure(value=None, unit=unit, provenance=Provenance.UNAVAILABLE)


def content_hash(*parts: str | bytes, length: int = 16) -> str:
    """Hex digest (SHA-256, cut to ``length``) of parts, each framed by its size so that no two lists collide."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:length]


def json_hash(value: Any, length: int = 16) -> str:
    """Content hash of a JSON-able value with sorted keys."""
    return content_hash(json.dumps(value, sort_keys=True, default=str), length=length)
