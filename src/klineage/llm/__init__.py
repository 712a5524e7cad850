"""Models as proposers: providers, budgets, prompts as files, answers as values, and a record of every exchange.

pydantic-ai (the ``llm`` extra) is imported only when a model is really asked.
"""

from .answer import Answer, read_answer
from .budget import BudgetSpentError, LlmBudget, Prices, load_prices
from .client import Client
from .outcome import Outcome
from .prompts import Prompts
from .record import Exchange, Record, UnseenPromptError

__all__ = [
    "Answer",
    "BudgetSpentError",
    "Client",
    "Exchange",
    "LlmBudget",
    "Outcome",
    "Prices",
    "Prompts",
    "Record",
    "UnseenPromptError",
    "load_prices",
    "read_answer",
]
