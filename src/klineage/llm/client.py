"""Asks a model: budgets before, retries during, evidence after."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import EnvironmentLackError, KLineageError
from ..model import Spent
from .answer import Answer, Proposed, read_answer
from .budget import Ledger, LlmBudget, Prices
from .outcome import Outcome
from .providers import EXTRA, ModelChoice, build, key_of, plain_url, redacted
from .record import Exchange, Record, prompt_hash

if TYPE_CHECKING:
    from pydantic_ai.models import Model

RETRIES = 4  # further requests after one that failed for a reason that may pass
LONGEST_WAIT_S = 60.0
BYTES_PER_TOKEN = 4  # a rough measure, for budgets checked before the provider has counted
_PASSING = frozenset({Outcome.RATE_LIMITED, Outcome.SERVER_ERROR, Outcome.CONNECTION, Outcome.TIMED_OUT})
_TOOL = "propose"

Failure = tuple[Outcome, str, float | None]  # what, why, seconds the provider asks to wait


class Client:
    """One model within one budget. ``keep`` gets every exchange as JSON text, to store it as evidence."""

    def __init__(
        self,
        choice: ModelChoice,
        budget: LlmBudget | None = None,
        record: Record | None = None,
        prices: Prices | None = None,
        keep: Callable[[str], object] = lambda _: None,
        timeout_s: float = 180.0,
        max_tokens: int = 8192,
        retries: int = RETRIES,
        sleep: Callable[[float], None] = time.sleep,
        form: str | None = None,
    ) -> None:
        self.choice = choice
        self.form = form or choice.form
        self.record = record or Record(None)
        self.keep = keep
        self.timeout_s = timeout_s
        self.max_tokens = max_tokens
        self.retries = retries
        self._sleep = sleep
        budget = budget or LlmBudget()
        price = (prices or {}).get(choice.full_name)
        if budget.money is not None and price is None:
            raise KLineageError(f"a budget in money needs the price of {choice.full_name}", "give --prices FILE")
        self.ledger = Ledger(budget, price)
        self._model: Model | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        if not self.record.replay_only:
            key_of(choice)  # a missing key is told before any work is done

    def ask(self, step: str, kernel: str, system: str, user: str) -> Answer:
        """One exchange about ``kernel``; never raises for what the model or the provider does.

        Raises BudgetSpentError before an exchange that may not be started, UnseenPromptError in a replay, and
        EnvironmentLackError when the provider does not take the key or does not know the model.
        """
        form = self.form
        name = prompt_hash(self.choice.full_name, system, user, form)
        prompt_tokens = (len(system) + len(user)) // BYTES_PER_TOKEN
        found = self.record.find(name, step)
        if found is None:
            self.ledger.check(prompt_tokens)
            exchange = self._fresh(name, system, user, form, prompt_tokens)
        else:
            if len(self.ledger.rows) >= self.ledger.budget.exchanges:
                self.ledger.check(prompt_tokens)
            exchange = found.model_copy(update={"requests": 0, "seconds": 0.0})
        answer = self._read(kernel, exchange)
        self._enter(step, exchange, answer, replayed=found is not None)
        return answer

    def close(self) -> None:
        """Close connections and stop the thread that talks to the provider. The client may be used again."""
        loop, thread, model = self._loop, self._thread, self._model
        self._loop, self._thread, self._model = None, None, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_close(model, loop), loop)
            thread.join(5.0)
            if not loop.is_running():
                loop.close()

    # ------------------------------------------------------------------ parts
    def _fresh(self, name: str, system: str, user: str, form: str, prompt_tokens: int) -> Exchange:
        started = time.monotonic()
        fields, sent = self._with_retries(system, user, form, prompt_tokens)
        exchange = Exchange(
            prompt=name,
            model=self.choice.full_name,
            system=system,
            user=user,
            form=form,
            requests=sent,
            seconds=time.monotonic() - started,
            **fields,
        )
        self.keep(exchange.model_dump_json(indent=2))
        self.record.keep(exchange)
        return exchange

    def _with_retries(self, system: str, user: str, form: str, prompt_tokens: int) -> tuple[dict[str, Any], int]:
        """(fields of the exchange, requests sent). What may pass is tried again, as late as the provider asks."""
        deadline = time.monotonic() + self.ledger.seconds_left()
        sent = 0
        while True:
            sent += 1
            left = max(deadline - time.monotonic(), 0.001)
            got = self._once(system, user, form, prompt_tokens, min(self.timeout_s, left))
            if isinstance(got, dict):
                return got, sent
            what, why, asked = got
            wait = asked if asked is not None else 2.0 ** (sent - 1) * (0.75 + random.random() / 2)
            left = deadline - time.monotonic()
            if what not in _PASSING or sent > self.retries or wait > min(LONGEST_WAIT_S, left):
                return {"failure": what, "reason": why}, sent
            self._sleep(wait)

    def _once(
        self, system: str, user: str, form: str, prompt_tokens: int, timeout_s: float
    ) -> dict[str, Any] | Failure:
        """One request over the wire: the fields of its answer, or why there is none."""
        if self._model is None:
            self._model = build(self.choice, self.timeout_s)
        limit = self.ledger.tokens_left(prompt_tokens)
        most = self.max_tokens if limit is None else min(self.max_tokens, limit)
        try:
            return self._run(_request(self._model, system, user, form, most, timeout_s), timeout_s)
        except ImportError as error:
            raise EnvironmentLackError(f"asking a model needs {error.name or 'pydantic-ai-slim'}", EXTRA) from error
        except Exception as error:
            return _failure(error, self.choice)

    def _run(self, work: Coroutine[Any, Any, dict[str, Any]], timeout_s: float) -> dict[str, Any]:
        """Run on a loop of our own thread: clients outlive a request, and callers may have loops of their own."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="llm", daemon=True)
            self._thread.start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s + 1.0)
        except BaseException:
            future.cancel()
            raise

    def _read(self, kernel: str, exchange: Exchange) -> Answer:
        if exchange.failure is not None:
            return Answer(exchange.failure, exchange.reason)
        return read_answer(kernel, exchange.text, exchange.arguments, exchange.finish)

    def _enter(self, step: str, exchange: Exchange, answer: Answer, *, replayed: bool) -> None:
        price = self.ledger.price
        cost = price.of(exchange.input_tokens, exchange.output_tokens) if price else None
        self.ledger.rows.append(
            Spent(
                step=step,
                model=exchange.model,
                outcome=answer.outcome.value,
                requests=exchange.requests,
                input_tokens=0 if replayed else exchange.input_tokens,
                output_tokens=0 if replayed else exchange.output_tokens,
                cost=0.0 if replayed else cost,
                seconds=exchange.seconds,
                exchange=exchange.prompt,
            )
        )


async def _request(
    model: Model, system: str, user: str, form: str, max_tokens: int, timeout_s: float
) -> dict[str, Any]:
    """Send one request; returns the fields of an Exchange that the answer fills."""
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, TextPart, ToolCallPart, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

    tool = ToolDefinition(
        name=_TOOL,
        description="Propose one change of the kernel, or say that there is nothing more.",
        parameters_json_schema=Proposed.model_json_schema(),
    )
    response = await asyncio.wait_for(
        model_request(
            model,
            [ModelRequest(parts=[SystemPromptPart(content=system), UserPromptPart(content=user)])],
            model_settings=ModelSettings(max_tokens=max_tokens, timeout=timeout_s),
            model_request_parameters=ModelRequestParameters(function_tools=[tool] if form == "tool" else []),
        ),
        timeout_s,
    )
    called = [p for p in response.parts if isinstance(p, ToolCallPart) and p.tool_name == _TOOL]
    return {
        "text": redacted("".join(p.content for p in response.parts if isinstance(p, TextPart))),
        "arguments": redacted(called[0].args_as_json_str()) if called else None,
        "finish": response.finish_reason,
        "input_tokens": response.usage.input_tokens,
        "output_tokens": response.usage.output_tokens,
    }


def _failure(error: Exception, choice: ModelChoice) -> Failure:
    """What a failed request came to.

    Raises KLineageError for what no retry and no other answer mends: a key not taken, a model not known.
    """
    from pydantic_ai.exceptions import ContentFilterError, ModelAPIError, ModelHTTPError, UnexpectedModelBehavior

    words = " ".join(str(error).split())
    if choice.base_url:  # an address may hold a password
        words = words.replace(choice.base_url, plain_url(choice.base_url))
    why = redacted(words)[:300] or type(error).__name__
    if isinstance(error, ModelHTTPError):
        status = int(error.status_code)
        if status in (401, 403):
            raise EnvironmentLackError(f"{choice.provider} does not take the key: {why}", "check the key") from error
        if status == 404:
            raise KLineageError(f"{choice.provider} does not know {choice.name!r}: {why}", "check --model") from error
        kind = Outcome.RATE_LIMITED if status == 429 else Outcome.TIMED_OUT if status in (408, 504) else None
        kind = kind or (Outcome.SERVER_ERROR if status >= 500 else Outcome.REQUEST_REFUSED)
        return kind, f"status {status}: {why}", _asked_to_wait(error)
    if isinstance(error, ContentFilterError):
        return Outcome.REFUSED, why, None
    causes = list(_causes(error))
    if any("timeout" in type(e).__name__.lower() for e in causes):
        return Outcome.TIMED_OUT, why, None
    if any(isinstance(e, json.JSONDecodeError) for e in causes):
        return Outcome.BAD_RESPONSE, why, None
    if isinstance(error, ModelAPIError | OSError):
        return Outcome.CONNECTION, why, None
    if isinstance(error, UnexpectedModelBehavior):
        return Outcome.BAD_RESPONSE, why, None
    return Outcome.BAD_RESPONSE, f"{type(error).__name__}: {why}", None


def _asked_to_wait(error: Any) -> float | None:
    """Seconds of the provider's Retry-After, when it gave one."""
    given = getattr(error, "retry_after", None)
    if given is None:
        given = (getattr(error, "headers", None) or {}).get("retry-after")
    try:
        return None if given is None else max(0.0, float(given))
    except ValueError:
        return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what lies under it, whatever library wrapped it."""
    while error is not None:
        yield error
        error = error.__cause__


async def _close(model: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Close the provider's connections, as far as its client knows how to."""
    client = getattr(model, "client", None)
    closing = getattr(client, "close", None)
    if closing is not None:
        with contextlib.suppress(Exception):  # they go with the process anyway
            done = closing()
            if asyncio.iscoroutine(done):
                await done
    loop.call_soon(loop.stop)
