"""What a conversation has so far: the opening that never changes, and the messages of its tasks.

A model's thoughts are signed together with all that precedes them, so requests only grow: a changed system prompt, tool
or earlier message is refused (https://platform.claude.com/docs/en/build-with-claude/thinking). What must change begins
a new conversation, with the texts of the tasks before.
"""

import json
from dataclasses import dataclass, field

from mcp_exec_client.agent.outcomes import Mode
from mcp_exec_client.agent.providers.model import Block
from mcp_exec_tools.text import estimate_tokens


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What all requests of a conversation begin with."""

    mode: Mode
    system: str
    definitions: list[Block]
    """Definitions of the tools, in their order."""


@dataclass(kw_only=True)
class ConversationHistory:
    """Messages of the tasks that succeeded. A task that fails leaves nothing: its uses of tools may have no results."""

    max_tokens: int
    """Most tokens of all tasks, as an estimate. If they are reached, a new conversation begins."""
    opening: Opening | None = None
    """None before the first task of a conversation."""
    servers: frozenset[str] = frozenset()
    """Servers of tools that the model knows."""
    _tasks: list[list[Block]] = field(default_factory=list)

    @property
    def messages(self) -> list[Block]:
        """All messages, oldest first."""
        return [message for messages in self._tasks for message in messages]

    def begin(self, opening: Opening) -> list[Block]:
        """Return the messages that precede a task with this opening: all of them, or the texts if it is another one."""
        if opening == self.opening:
            return self.messages
        return [message for messages in self._tasks for message in reduce_to_text(messages)]

    def add(self, messages: list[Block], *, opening: Opening, servers: frozenset[str]) -> None:
        """Add the messages of a task, from its text to its answer."""
        if opening != self.opening:
            self._tasks = [reduce_to_text(each) for each in self._tasks]
        self.opening, self.servers = opening, servers
        self._tasks.append(messages)
        if _estimate(self._tasks) <= self.max_tokens:
            return
        self.restart()
        while self._tasks and _estimate(self._tasks) > self.max_tokens:
            del self._tasks[0]

    def restart(self) -> None:
        """Begin a new conversation with the texts of the earlier tasks."""
        self.opening = None
        self._tasks = [reduce_to_text(each) for each in self._tasks]

    def clear(self) -> None:
        """Forget everything."""
        self._tasks.clear()
        self.opening, self.servers = None, frozenset()


def reduce_to_text(messages: list[Block]) -> list[Block]:
    """Return a task's text and its answer's; notices, uses of tools and thoughts belong to the opening."""
    task, answer = _list_texts(messages[0])[0], "".join(_list_texts(messages[-1]))
    return [{"role": "user", "content": task}, {"role": "assistant", "content": answer}]


def _list_texts(message: Block) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [block["text"] for block in content if block["type"] == "text"]


def _estimate(tasks: list[list[Block]]) -> int:
    return sum(estimate_tokens(json.dumps(messages, ensure_ascii=False)) for messages in tasks)
