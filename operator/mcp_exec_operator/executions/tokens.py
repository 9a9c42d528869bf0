"""Estimated tokens of an execution, and what working by code saved or lost with it."""

from dataclasses import replace
from typing import Final

from mcp_exec_api.code_execution import TokenUsage
from mcp_exec_operator.executions.outcome import ExecutionOutcome
from mcp_exec_tools.text import METHOD, estimate_tokens

BYTES_PER_TOKEN: Final = 4
"""Bytes of data that stayed in the sandbox for each token, of which only the size is known."""
TOKENS_METHOD: Final = f"{METHOD}; kept: {BYTES_PER_TOKEN} bytes"
_EXACT_CHARACTERS: Final = 8192
"""Most characters of a text that are read in full: 1.3 ms of the operator's time; of a longer one, samples."""


def estimate_part(text: str) -> int:
    """Return the estimated tokens of one text of an execution, in at most about a millisecond."""
    return estimate_tokens(text, exact_characters=_EXACT_CHARACTERS)


def with_tokens(outcome: ExecutionOutcome, *, code_tokens: int) -> ExecutionOutcome:
    """Return the outcome with its tokens; unchanged if the execution had no sandbox."""
    if outcome.usage is None:
        return outcome
    tokens = TokenUsage(
        code=code_tokens,
        returned=sum(map(estimate_part, outcome.list_shown())),
        kept=_read_kept(outcome),
        method=TOKENS_METHOD,
    )
    return replace(outcome, usage=outcome.usage.model_copy(update={"tokens": tokens}))


def find_saving(tokens: TokenUsage, *, calls: int) -> int:
    """Return the estimated tokens that code saved in comparison with direct calls; negative if it lost some.

    Directly, a model would also read what stayed in the sandbox, and would write no code. Definitions of tools,
    arguments, and messages that later requests repeat are not counted. Code that called no tool saves nothing.
    """
    return 0 if calls == 0 or tokens.kept is None else tokens.kept - tokens.code


def _read_kept(outcome: ExecutionOutcome) -> int | None:
    kept = (outcome.tool_calls or {}).get("bytesKept")
    return None if outcome.tool_calls is None else round((kept or 0) / BYTES_PER_TOKEN)
