"""A demo server: channels of a chat, in one of which a deployment is announced when it is done."""

import threading
from dataclasses import dataclass, field
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import ADDS, READS, run

POLLS: Final = 3
"""How often a channel is read without news of a deployment."""
MAX_MESSAGES: Final = 1000
"""Messages that are kept of a channel."""

server = MCPServer(
    "slack",
    instructions="Channels of a chat. A message that begins with `deploy` in a channel starts a deployment, "
    "whose end is announced there a few looks later.",
)
Channel = Annotated[str, Field(description="The channel's id, such as `C123`, from list_channels", min_length=1)]


class Message(BaseModel):
    """What somebody wrote."""

    ts: str = Field(description="When: seconds, and what tells messages of the same second apart")
    user: str
    text: str


class ChannelInfo(BaseModel):
    """A channel."""

    id: str
    name: str
    topic: str


@dataclass
class Room:
    """A channel, with all that was written, and what is going on there."""

    info: ChannelInfo
    messages: list[Message]
    deploying: str | None = None
    polls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, user: str, text: str) -> Message:
        """Adds a message, one second after the last."""
        message = Message(ts=f"{1_793_520_000 + len(self.messages)}.000100", user=user, text=text)
        self.messages.append(message)
        del self.messages[:-MAX_MESSAGES]
        return message

    def deploy(self, what: str) -> None:
        """From now on a deployment runs."""
        self.deploying, self.polls = what, 0

    def look(self) -> None:
        """Somebody reads; a deployment gets on by that."""
        if self.deploying is None:
            return
        self.polls += 1
        if self.polls > POLLS:
            self.write("deploy-bot", f"deployment complete: {self.deploying}")
            self.deploying = None


def rooms() -> dict[str, Room]:
    """The channels as they are at the beginning."""
    deployments = ChannelInfo(id="C123", name="deployments", topic="What goes out, and when")
    general = ChannelInfo(id="C200", name="general", topic="Everything else")
    made = {info.id: Room(info=info, messages=[]) for info in (deployments, general)}
    made["C123"].write("maria", "deploy web 1.42.0")
    made["C123"].write("deploy-bot", "deployment started: web 1.42.0")
    made["C123"].deploy("web 1.42.0")
    made["C200"].write("jonas", "Lunch at noon?")
    made["C200"].write("maria", "Yes!")
    return made


_rooms = rooms()


def room_of(channel: str) -> Room:
    """The channel of an id or #name; ToolError where there is none."""
    for room in _rooms.values():
        if channel in (room.info.id, room.info.name, f"#{room.info.name}"):
            return room
    raise ToolError(f"channel_not_found: {channel!r}; there are {', '.join(_rooms)}")


@server.tool(annotations=READS)
def list_channels() -> list[ChannelInfo]:
    """The channels."""
    return [room.info for room in _rooms.values()]


@server.tool(annotations=READS)
def get_channel_history(
    channel: Channel, limit: Annotated[int, Field(ge=1, le=MAX_MESSAGES, description="Most messages")] = 100
) -> list[Message]:
    """The last messages of a channel, the newest first."""
    room = room_of(channel)
    with room.lock:
        room.look()
        return room.messages[::-1][:limit]


@server.tool(annotations=ADDS)
def post_message(
    channel: Channel, text: Annotated[str, Field(min_length=1, max_length=4000, description="What to write")]
) -> Message:
    """Writes a message to a channel."""
    room = room_of(channel)
    with room.lock:
        message = room.write("mcp-exec", text)
        if text.lower().startswith("deploy "):
            what = text[7:].strip()
            room.write("deploy-bot", f"deployment started: {what}")
            room.deploy(what)
        return message


if __name__ == "__main__":
    run(server)
