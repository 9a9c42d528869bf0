"""How an execution ends, its estimated tokens, and the exceptions that end its reconciliation."""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from mcp_exec_api.code_execution import Durations, ExecutionError, Phase, TokenUsage, Usage
from mcp_exec_api.code_findings import Note
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_tools.text import METHOD, estimate_tokens

BYTES_PER_TOKEN: Final = 4
"""Bytes for each token of data that stayed in the sandbox. Only its size is known."""
TOKENS_METHOD: Final = f"{METHOD}; kept: {BYTES_PER_TOKEN} bytes"
EXACT_CHARACTERS: Final = 8192
"""Most characters of a text that are read in full: 1.3 ms of the operator's time; of a longer one, samples."""


@dataclass(frozen=True, kw_only=True)
class ExecutionOutcome:
    """The end of an execution."""

    phase: Phase
    reason: Reason = Reason.NONE
    message: str = ""
    error: ExecutionError | None = None
    output: Object | None = None
    started_at: datetime | None = None
    durations: Durations = field(default_factory=Durations)
    """The known durations, without the total."""
    usage: Usage | None = None
    """What it used; None if it had no sandbox."""
    saving: int = 0
    """Estimated tokens that code saved in comparison with direct calls; negative if it lost some.

    Directly, a model would also read what stayed in the sandbox, and would write no code. Definitions of tools,
    arguments, and messages that later requests repeat are not counted. Code that called no tool saves nothing.
    """
    tool_calls: Object | None = None
    """What was called; None if the execution may call nothing."""
    skills: Object | None = None
    """Skills that it used and saved; None keeps those of the status."""
    code_findings: list[Object] | None = None
    """Findings in the code; None keeps those of the status."""
    approvals: list[Object] | None = None
    """Tool calls that needed an approval; None keeps those of the status."""
    artifacts: list[Object] = field(default_factory=list)
    """Files that the run produced for people."""
    workspace: Object | None = None
    """What the run read from its workspace and saved."""
    notes: list[Note] = field(default_factory=list)
    """What a reader must know though the code succeeded."""

    has_ended: bool = False
    """Whether the sandbox has sent the end of the run."""
    left_clean: bool = False
    """Whether the run ended by itself and within its limits, so that its sandbox can be cleaned and used again."""

    def list_shown(self) -> list[str]:
        """Return the texts that leave the sandbox: stdout and stderr as kept, the error with traceback, the result."""
        output, error = self.output or {}, self.error
        texts = [output.get("stdout"), output.get("stderr")]
        if error is not None:
            texts += [error.type, error.message, error.traceback]
        if (result := output.get("result")) is not None:
            texts.append(json.dumps(result, ensure_ascii=False))
        return [text for text in texts if text]

    def without_details(self, why: str) -> "ExecutionOutcome":
        """Return the outcome without output, error and lists, for an API server that rejects them."""
        message = f"{self.message}; {why}" if self.message else why
        error = ExecutionError(type=self.reason.value, message=message) if self.phase is Phase.FAILED else None
        return replace(
            self,
            message=message,
            error=error,
            output=None,
            tool_calls=None,
            code_findings=[],
            approvals=[],
            notes=[],
            artifacts=[{**artifact, "preview": "", "title": ""} for artifact in self.artifacts],
        )


def build_failure(reason: Reason, message: str) -> ExecutionOutcome:
    """Return the outcome of an execution that never ran, or of whose run nothing is known."""
    return ExecutionOutcome(
        phase=Phase.FAILED, reason=reason, message=message, error=ExecutionError(type=reason.value, message=message)
    )


def build_cancellation(why: str = "") -> ExecutionOutcome:
    """Return the outcome of an execution that was cancelled before it ran."""
    message = f"cancelled before it ran: {why}" if why else "cancelled before it ran"
    return ExecutionOutcome(phase=Phase.CANCELLED, reason=Reason.CANCELLED, message=message)


class EndedBeforeRun(Exception):
    """The execution ends without running, with `outcome`."""

    def __init__(self, outcome: ExecutionOutcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class Superseded(Exception):
    """Another operator has bound or ended the execution."""


class ExecutionGone(Exception):
    """The execution was deleted."""


class StatusTooLarge(Exception):
    """The API server rejects a status of this size."""


def with_tokens(outcome: ExecutionOutcome, *, code_tokens: int) -> ExecutionOutcome:
    """Return the outcome with its tokens and its saving; unchanged if the execution had no sandbox."""
    if outcome.usage is None:
        return outcome
    calls = outcome.tool_calls
    kept = None if calls is None else round((calls.get("bytesKept") or 0) / BYTES_PER_TOKEN)
    tokens = TokenUsage(
        code=code_tokens,
        returned=sum(estimate_tokens(text, exact_characters=EXACT_CHARACTERS) for text in outcome.list_shown()),
        kept=kept,
        method=TOKENS_METHOD,
    )
    saving = kept - code_tokens if calls and calls.get("total") and kept is not None else 0
    return replace(outcome, usage=outcome.usage.model_copy(update={"tokens": tokens}), saving=saving)
