"""What a model may cost: exchanges, tokens, money, time. Prices come from the user; none are built in."""

from __future__ import annotations

import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from ..errors import KLineageError
from ..model import Frozen, Spent


class BudgetSpentError(Exception):
    """No further exchange may be started. Not an error of the user's: the run ends in order and says why."""


class Price(Frozen):
    """Price of a million tokens, in whatever currency the user keeps accounts in."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """The price of one exchange."""
        return (self.input * input_tokens + self.output * output_tokens) / 1e6


Prices = dict[str, Price]  # by "provider:name"


def load_prices(path: Path) -> Prices:
    """Read a TOML table ``["provider:name"]`` with ``input`` and ``output`` per million tokens.

    Raises KLineageError when it cannot be read.
    """
    try:
        return TypeAdapter(Prices).validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise KLineageError(f"cannot read the prices {path}: {error.strerror}", "check the path") from error
    except (tomllib.TOMLDecodeError, ValidationError, UnicodeDecodeError) as error:
        line = str(error).splitlines()[0]
        raise KLineageError(
            f"the prices {path} cannot be read: {line}", 'write ["provider:name"] with input = and output ='
        ) from error


@dataclass(frozen=True)
class LlmBudget:
    """Limits of one run; the first that is reached ends it. None: no limit of that kind."""

    exchanges: int = 60
    tokens: int | None = None  # in and out together
    money: float | None = None
    seconds: float | None = 3600.0  # waiting for the model, retries included


@dataclass
class Ledger:
    """What was spent so far, exchange by exchange."""

    budget: LlmBudget
    price: Price | None = None
    rows: list[Spent] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def tokens(self) -> int:
        """Tokens in and out so far."""
        return sum(r.input_tokens + r.output_tokens for r in self.rows)

    @property
    def money(self) -> float:
        """Cost so far, as far as it is known."""
        return sum(r.cost or 0.0 for r in self.rows)

    @property
    def seconds(self) -> float:
        """Seconds spent waiting for the model so far."""
        return sum(r.seconds for r in self.rows)

    def check(self, prompt_tokens: int) -> None:
        """Raise BudgetSpentError when an exchange with a prompt of about this size may not be started."""
        b = self.budget
        if len(self.rows) >= b.exchanges:
            raise BudgetSpentError(f"the budget of {b.exchanges} exchanges is spent")
        if b.tokens is not None and self.tokens + prompt_tokens >= b.tokens:
            raise BudgetSpentError(f"the budget of {b.tokens:,} tokens is spent ({self.tokens:,} used)")
        ahead = self.price.of(prompt_tokens, 0) if self.price else 0.0
        if b.money is not None and self.money + ahead >= b.money:
            raise BudgetSpentError(f"the budget of {b.money:g} is spent ({self.money:.4g} used)")
        if b.seconds is not None and self.seconds >= b.seconds:
            raise BudgetSpentError(f"the budget of {b.seconds:g} s of waiting for the model is spent")

    def seconds_left(self) -> float:
        """Seconds that the next exchange may take."""
        return float("inf") if self.budget.seconds is None else max(0.0, self.budget.seconds - self.seconds)

    def tokens_left(self, prompt_tokens: int) -> int | None:
        """Tokens that the next answer may have, by the budgets of tokens and money; None without a limit."""
        limits: list[float] = []
        if self.budget.tokens is not None:
            limits.append(self.budget.tokens - self.tokens - prompt_tokens)
        if self.budget.money is not None and self.price is not None and self.price.output:
            left = self.budget.money - self.money - self.price.of(prompt_tokens, 0)
            limits.append(left * 1e6 / self.price.output)
        return max(1, int(min(limits))) if limits else None
