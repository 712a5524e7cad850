"""Every exchange kept as a file named by the hash of its prompt: read it, send it on, replay it without a key."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from ..errors import KLineageError
from ..model import Frozen, content_hash
from .outcome import Outcome


class UnseenPromptError(KLineageError):
    """A prompt that the record being replayed does not hold."""


class Exchange(Frozen):
    """One prompt and what came of it. Holds no key, no header and no address with credentials."""

    prompt: str  # hash of model, system, user and form
    model: str  # "provider:name"
    system: str
    user: str
    form: str  # "tool" or "text": how the answer was asked for
    text: str = ""
    arguments: str | None = None  # of the answer's tool call, as JSON
    finish: str | None = None
    failure: Outcome | None = None  # when no answer was had
    reason: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 1
    seconds: float = 0.0


def prompt_hash(model: str, system: str, user: str, form: str) -> str:
    """The name of an exchange: whoever asks the same of the same model gets the same name."""
    return content_hash(model, system, user, form, length=32)


class Record:
    """A folder of exchanges. With ``replay_only`` nothing is asked anew and an unseen prompt is an error."""

    def __init__(self, folder: Path | None, *, replay_only: bool = False) -> None:
        if replay_only and (folder is None or not folder.is_dir()):
            raise KLineageError(f"there is no record of exchanges at {folder}", "name the folder of an earlier run")
        self.folder = folder
        self.replay_only = replay_only

    def find(self, prompt: str, step: str) -> Exchange | None:
        """The exchange of a prompt, or None.

        Outside a replay, one that failed for want of an answer is None too: asking again may go better. Raises
        UnseenPromptError in a replay, and KLineageError when the file is damaged.
        """
        path = self.folder / f"{prompt}.json" if self.folder else None
        if path is None or not path.is_file():
            if self.replay_only:
                raise UnseenPromptError(
                    f"replay: the prompt {prompt} ({step}) is not in {self.folder}",
                    "replay with the model, prompts, skills and store that the record was made with",
                )
            return None
        try:
            exchange = Exchange.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            raise KLineageError(
                f"the exchange {path} cannot be read: {str(error).splitlines()[0]}", "delete it"
            ) from error
        if prompt_hash(exchange.model, exchange.system, exchange.user, exchange.form) != prompt:
            raise KLineageError(f"the exchange {path} was changed: its prompt has another hash", "delete it")
        return exchange if self.replay_only or exchange.failure is None else None

    def keep(self, exchange: Exchange) -> None:
        """Write an exchange, whole or not at all. Raises KLineageError when the folder cannot be written."""
        if self.folder is None or self.replay_only:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=self.folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(exchange.model_dump_json(indent=2) + "\n")
            Path(temporary).replace(self.folder / f"{exchange.prompt}.json")
        except OSError as error:
            raise KLineageError(f"cannot write the record {self.folder}: {error.strerror}", "use --record") from error
