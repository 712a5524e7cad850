"""Models by name: ``provider:name``, keys from the environment only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ..errors import EnvironmentLackError, KLineageError

if TYPE_CHECKING:
    from pydantic_ai.models import Model

EXTRA = "pip install 'klineage[llm]'"


@dataclass(frozen=True)
class Provider:
    """A way to reach models. ``speaks`` is the wire format; ``keys`` the environment variables tried in order."""

    speaks: str
    keys: tuple[str, ...]
    base_url: str | None = None
    needs_key: bool = True
    form: str = "tool"  # how an answer is asked for: "tool" (a JSON schema) or "text"


PROVIDERS = {
    "openai": Provider("openai", ("OPENAI_API_KEY",)),
    "anthropic": Provider("anthropic", ("ANTHROPIC_API_KEY",)),
    "google": Provider("google", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
    "openrouter": Provider("openai", ("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1"),
    "ollama": Provider("openai", ("OLLAMA_API_KEY",), "http://localhost:11434/v1", needs_key=False, form="text"),
    "vllm": Provider("openai", ("VLLM_API_KEY",), "http://localhost:8000/v1", needs_key=False, form="text"),
    "llama.cpp": Provider("openai", ("LLAMA_API_KEY",), "http://localhost:8080/v1", needs_key=False, form="text"),
}


@dataclass(frozen=True)
class ModelChoice:
    """A model as the user named it. ``base_url`` overrides the provider's own."""

    provider: str
    name: str
    base_url: str | None = None

    @property
    def full_name(self) -> str:
        """ "provider:name"."""
        return f"{self.provider}:{self.name}"

    @property
    def form(self) -> str:
        """How its answers are asked for: servers at an address of the user's own may know no tools."""
        return "text" if self.base_url and self.provider == "openai" else PROVIDERS[self.provider].form


def choose(model: str, base_url: str | None = None) -> ModelChoice:
    """Read ``provider:name``.

    Raises KLineageError when it is not of that form, the provider is not known, or the address is none.
    """
    provider, colon, name = model.partition(":")
    if not colon or not name or provider not in PROVIDERS:
        raise KLineageError(
            f"model {model!r} is not provider:name",
            f"providers: {', '.join(PROVIDERS)}; any server: openai + --base-url",
        )
    if base_url is not None and urlsplit(base_url).scheme not in ("http", "https"):
        raise KLineageError(f"--base-url {plain_url(base_url)} is no address", "give http://host:port/v1")
    return ModelChoice(provider, name, base_url)


def key_of(choice: ModelChoice) -> str | None:
    """The provider's key from the environment.

    Raises EnvironmentLackError when it needs one and there is none. A server at the user's own address needs none.
    """
    provider = PROVIDERS[choice.provider]
    for variable in provider.keys:
        value = os.environ.get(variable, "").strip()
        if value:
            return value
    if provider.needs_key and choice.base_url is None:
        raise EnvironmentLackError(f"no key for {choice.provider}", f"export {provider.keys[0]}=...")
    return None


def secrets() -> list[str]:
    """Every key in the environment that a provider may use: what must never be written anywhere."""
    names = [variable for provider in PROVIDERS.values() for variable in provider.keys]
    return [v for v in (os.environ.get(n, "").strip() for n in names) if len(v) >= 6]


def redacted(text: str) -> str:
    """Text with every key of the environment taken out: servers repeat keys in their errors."""
    for secret in secrets():
        text = text.replace(secret, "[key]")
    return text


def plain_url(url: str) -> str:
    """An address without credentials and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def build(choice: ModelChoice, timeout_s: float) -> Model:
    """The pydantic-ai model of a choice; its client does no retries of its own.

    Raises EnvironmentLackError when the extra or the key is missing.
    """
    key = key_of(choice)
    speaks = PROVIDERS[choice.provider].speaks
    url = choice.base_url or PROVIDERS[choice.provider].base_url
    try:
        return _BUILDERS[speaks](choice.name, key or "no-key", url, timeout_s)
    except ImportError as error:
        raise EnvironmentLackError(
            f"asking {choice.provider} needs {error.name or 'pydantic-ai-slim'}", EXTRA
        ) from error


def _openai(name: str, key: str, url: str | None, timeout_s: float) -> Any:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(api_key=key, base_url=url, timeout=timeout_s, max_retries=0)
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))


def _anthropic(name: str, key: str, url: str | None, timeout_s: float) -> Any:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(api_key=key, base_url=url, timeout=timeout_s, max_retries=0)
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


def _google(name: str, key: str, url: str | None, timeout_s: float) -> Any:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    del timeout_s  # a setting of each request
    return GoogleModel(name, provider=GoogleProvider(api_key=key, base_url=url))


_BUILDERS = {"openai": _openai, "anthropic": _anthropic, "google": _google}
