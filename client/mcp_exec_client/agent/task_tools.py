"""What the uses of tools of one task may do: run code, call directly within the rules, or neither."""

from dataclasses import dataclass, field
from typing import Final

from mcp_exec_client.agent.code_mode import CODE_TOOL_NAMES, CodeMode
from mcp_exec_client.agent.direct_mode import DirectMode, count_rows
from mcp_exec_client.agent.hybrid_rules import HybridRules
from mcp_exec_client.agent.outcomes import AgentStep, LimitReached, OnEvent, ToolOutcome
from mcp_exec_client.agent.providers.model import UNREADABLE, Block
from mcp_exec_tools.text import estimate_tokens

_SHOWN_CHARACTERS: Final = 2000
"""Most characters of a result that is too large for a direct call."""
_PROBLEM_CHARACTERS: Final = 500


@dataclass(kw_only=True)
class TaskTools:
    """Tools of one task."""

    code: CodeMode | None
    """None if the task runs only by direct calls."""
    direct: DirectMode | None
    """None if the task runs only by code."""
    definitions: list[Block]
    rules: HybridRules | None = None
    """Bounds of direct calls in a hybrid task."""
    only_code: str = ""
    """Why a hybrid task is done by code: direct calls are refused. Empty if they are allowed."""
    max_failures: int = 3
    calls: int = 0
    """Direct calls so far."""
    failures: int = field(default=0, init=False)
    """Failed blocks of code in a row."""
    problem: str = field(default="", init=False)
    """Why the newest one failed."""
    refused: bool = field(default=False, init=False)
    """Whether code was refused because too much had failed."""

    async def work(self, use: Block, *, on_event: OnEvent) -> Block:
        """Use a tool and return its `tool_result`. Raises AgentError and McpExecError."""
        name, given = str(use.get("name")), use.get("input")
        if isinstance(given, dict) and UNREADABLE in given:
            outcome = await self._refuse(
                f"the arguments of {name[:100]} are not valid JSON: send one JSON object", on_event
            )
        elif self.direct is not None and (self.code is None or name not in CODE_TOOL_NAMES):
            outcome = await self._call(self.direct, name, given, on_event)
        elif self.code is None:
            outcome = await self._refuse(f"there is no tool {name[:100]!r}", on_event)
        else:
            outcome = await self.run(self.code, name, given, on_event=on_event)
        return outcome.to_block(str(use.get("id")))

    async def run(self, code: CodeMode, name: str, given: object, *, on_event: OnEvent) -> ToolOutcome:
        """Use a tool of code mode. After too many failures in a row, no further code is run."""
        runs_code = name == "execute_code"
        if runs_code and self.failures >= self.max_failures:
            self.refused = True
            return await self._refuse("no attempt is left: answer with what you have, and say what failed", on_event)
        outcome = await code.work(name, given, on_event=on_event)
        if not runs_code:
            return outcome
        self.failures = self.failures + 1 if outcome.failed else 0
        self.problem = outcome.problem
        if self.failures < self.max_failures:
            return outcome
        text = f"{outcome.text}\nThis was attempt {self.failures} of {self.max_failures}: answer with what you have."
        return ToolOutcome(text=text, failed=True, refused=outcome.refused)

    def check_attempts(self) -> None:
        """Raise LimitReached if code was refused in an earlier answer, before a model that goes on writes more."""
        if self.refused:
            failed = f"{self.failures} blocks of code failed in a row, and the model gave no answer"
            raise LimitReached("failures", f"{failed}; the last one: {self.problem[:_PROBLEM_CHARACTERS]}")

    async def _call(self, direct: DirectMode, name: str, given: object, on_event: OnEvent) -> ToolOutcome:
        if name not in {tool["name"] for tool in self.definitions}:
            return await self._refuse(f"there is no tool {name[:100]!r}", on_event)
        if self.only_code:
            reason = f"this task is done by code ({self.only_code}): call the tool in a block of execute_code"
            return await self._refuse(reason, on_event)
        rules = self.rules
        if rules is not None and self.calls >= rules.max_calls:
            reason = f"more than {rules.max_calls} calls are needed"
            await on_event(AgentStep(kind="mode", text=f"code (max_calls): {reason}"))
            return await self._refuse(f"{reason}: do the rest by one block of code with execute_code", on_event)
        self.calls += 1
        outcome = await direct.work(name, given, on_event=on_event)
        if rules is None or outcome.failed:
            return outcome
        if (rows := count_rows(outcome.text)) > rules.max_rows:
            rule, reason = "max_rows", f"the result has {rows} rows, more than {rules.max_rows}"
        elif (size := estimate_tokens(outcome.text)) > rules.max_result_tokens:
            rule = "max_result_tokens"
            reason = f"the result has about {size} tokens, more than {rules.max_result_tokens}"
        else:
            return outcome
        await on_event(AgentStep(kind="mode", text=f"code ({rule}): {reason}"))
        beginning = outcome.text[:_SHOWN_CHARACTERS]
        return ToolOutcome(text=f"{beginning}... ({reason}: call the tool by code with execute_code, and print less)")

    async def _refuse(self, reason: str, on_event: OnEvent) -> ToolOutcome:
        await on_event(AgentStep(kind="results", text=reason, failed=True))
        return ToolOutcome(text=reason, failed=True, refused=True)
