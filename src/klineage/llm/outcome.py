"""What can come of asking a model: a closed set, each with its own name in reports and training data."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """One exchange's outcome. Only the first two give a kernel to judge."""

    OK = "ok"
    PROSE = "prose_round_code"  # the one code block is taken, the prose round it left out
    NOTHING = "nothing_more"  # the model says that it has nothing more to propose
    REFUSED = "refused"  # by the model in words, or by the provider's filter
    TRUNCATED = "truncated"
    EMPTY = "empty"
    MALFORMED = "malformed"  # JSON that does not parse or does not fit, an unclosed code block
    NO_CODE = "no_code"
    SEVERAL_BLOCKS = "several_code_blocks"  # which one is meant cannot be told
    EDIT_DOES_NOT_APPLY = "edit_does_not_apply"
    SYNTAX_ERROR = "syntax_error"
    UNCHANGED = "unchanged"
    RATE_LIMITED = "rate_limited"  # still so after the retries, as are the next four
    TIMED_OUT = "timed_out"
    SERVER_ERROR = "server_error"
    CONNECTION = "connection"  # could not be made, or was cut
    BAD_RESPONSE = "bad_response"  # the provider's own answer cannot be read
    REQUEST_REFUSED = "request_refused"  # the provider will not take this request (too long, say)

    @property
    def usable(self) -> bool:
        """Whether there is a kernel to judge."""
        return self in (Outcome.OK, Outcome.PROSE)

    @property
    def of_transport(self) -> bool:
        """Whether no answer of the model was had at all."""
        return self in _TRANSPORT


_TRANSPORT = frozenset(
    {
        Outcome.RATE_LIMITED,
        Outcome.TIMED_OUT,
        Outcome.SERVER_ERROR,
        Outcome.CONNECTION,
        Outcome.BAD_RESPONSE,
        Outcome.REQUEST_REFUSED,
    }
)
