"""Conversations in memory: a bounded number, the oldest is forgotten first."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from chat_app.loop import ChatLoop


class ChatRefused(Exception):
    """A message that is not possible. The text is shown on the page."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Conversation:
    """One conversation. It answers one message at a time."""

    name: str
    loop: ChatLoop
    messages: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(kw_only=True)
class Conversations:
    """Conversations by their names, which nobody can guess."""

    make_loop: Callable[[str, bool], ChatLoop]
    """Returns the loop of a conversation's name and of `use_code_execution`."""
    max_conversations: int = 100
    max_messages: int = 20
    _kept: OrderedDict[str, Conversation] = field(default_factory=OrderedDict)

    def find(self, name: str | None, *, use_code_execution: bool) -> Conversation:
        """Return the conversation, or a new one without a name. Raises ChatRefused and LoopFailed."""
        if name is None:
            return self._begin(use_code_execution)
        found = self._kept.get(name)
        if found is None:
            raise ChatRefused(404, "the conversation is not known any more; begin a new one")
        if found.lock.locked():
            raise ChatRefused(409, "the conversation answers another message")
        if found.messages >= self.max_messages:
            raise ChatRefused(409, f"a conversation has at most {self.max_messages} messages; begin a new one")
        self._kept.move_to_end(name)
        return found

    def _begin(self, use_code_execution: bool) -> Conversation:
        name = f"chat-{secrets.token_hex(16)}"
        made = Conversation(name, self.make_loop(name, use_code_execution))
        self._kept[name] = made
        while len(self._kept) > self.max_conversations:
            self._kept.popitem(last=False)
        return made
