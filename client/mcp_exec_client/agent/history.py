"""Messages of a conversation, task by task."""

import json
from dataclasses import dataclass, field

from mcp_exec_client.agent.providers.model import Block
from mcp_exec_tools.text import estimate_tokens


@dataclass(kw_only=True)
class ConversationHistory:
    """Messages of the tasks that succeeded. A task that fails leaves nothing: its uses of tools may have no results."""

    max_tokens: int
    """Most tokens of all tasks, as an estimate; the oldest tasks are dropped first."""
    _tasks: list[tuple[int, list[Block]]] = field(default_factory=list)

    @property
    def messages(self) -> list[Block]:
        """All messages, oldest first."""
        return [message for _, messages in self._tasks for message in messages]

    def add(self, messages: list[Block]) -> None:
        """Add the messages of a task, from its text to its answer."""
        self._tasks.append((estimate_tokens(json.dumps(messages, ensure_ascii=False)), messages))
        while self._tasks and sum(size for size, _ in self._tasks) > self.max_tokens:
            del self._tasks[0]

    def clear(self) -> None:
        """Forget everything."""
        self._tasks.clear()
