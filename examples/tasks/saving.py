"""Run a task on the gateway of $MCP_EXEC_GATEWAY, and print its output with what a model did not have to read."""

from collections.abc import Callable
from dataclasses import dataclass

from mcp_exec_client import Client, Execution
from mcp_exec_tools.text import METHOD, estimate_tokens

BYTES_PER_TOKEN = 3.5
"""Of JSON, about. The gateway reports the size of tool results, not their text."""

Task = Callable[[Client], list[Execution]]


@dataclass(frozen=True, kw_only=True)
class Saving:
    """What the executions of a task moved, in bytes, and in tokens by an estimate."""

    calls: int
    received: int
    """Bytes of tool results that entered the sandbox."""
    code_tokens: int
    """Tokens that the model writes: the code."""
    read_tokens: int
    """Tokens that the model reads: standard output and result."""

    @property
    def direct_tokens(self) -> int:
        """Tokens of the tool results, which a model that calls the tools directly reads at least once."""
        return round(self.received / BYTES_PER_TOKEN)

    @property
    def tokens(self) -> int:
        """Tokens saved. Negative if code cost more than the tool results."""
        return self.direct_tokens - self.code_tokens - self.read_tokens

    def __str__(self) -> str:
        """Return the sentence that an example prints."""
        verb = "saved" if self.tokens >= 0 else "LOST"
        return (
            f"{self.calls} tool calls, {self.received:,} bytes of results; a model writes {self.code_tokens:,} and reads "
            f"{self.read_tokens:,} tokens instead of {self.direct_tokens:,}: {verb} {abs(self.tokens):,} ({METHOD})"
        )


def measure(client: Client, runs: list[Execution]) -> Saving:
    """Add up what the executions of a task moved."""
    calls = [run.tool_calls for run in runs if run.tool_calls is not None]
    codes = [client.get(run.name, include_code=True).code or "" for run in runs]
    texts = [run.stdout + ("" if run.result is None else str(run.result)) for run in runs]
    return Saving(
        calls=sum(each.total for each in calls),
        received=sum(each.bytes_in for each in calls),
        code_tokens=sum(map(estimate_tokens, codes)),
        read_tokens=sum(map(estimate_tokens, texts)),
    )


def run_task(task: Task) -> Saving:
    """Run a task, print what its code printed, its result and what it saved."""
    with Client() as client:
        runs = task(client)
        for run in runs:
            run.raise_for_failure()
            print(run.stdout, end="")
            if run.result is not None:
                print(f"-> {run.result}")
        saving = measure(client, runs)
    print(f"[{saving}]")
    return saving
