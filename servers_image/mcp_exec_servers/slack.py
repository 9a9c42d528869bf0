"""Demo server: channels of a chat; one of them announces the end of a deployment."""

import threading
from dataclasses import dataclass, field
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import ADDS, READS, run

POLLS: Final = 3
"""Reads of a channel before the end of a deployment is announced."""
MAX_MESSAGES: Final = 1000
"""Most messages stored per channel; older ones are dropped."""

server = MCPServer(
    "slack",
    instructions="Channels of a chat. A message that begins with `deploy` in a channel starts a deployment, "
    "whose end is announced there after a few reads.",
)
Channel = Annotated[str, Field(description="The channel's id, such as `C123`, from list_channels", min_length=1)]


class Message(BaseModel):
    """A message in a channel."""

    ts: str = Field(description="Seconds since 1970 with a suffix, unique in the channel")
    user: str
    text: str


class ChannelInfo(BaseModel):
    """A channel."""

    id: str
    name: str
    topic: str


@dataclass
class Room:
    """State of a channel: its messages and its running deployment."""

    info: ChannelInfo
    messages: list[Message]
    deploying: str | None = None
    polls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, user: str, text: str) -> Message:
        """Add a message, one second after the last one."""
        message = Message(ts=f"{1_793_520_000 + len(self.messages)}.000100", user=user, text=text)
        self.messages.append(message)
        del self.messages[:-MAX_MESSAGES]
        return message

    def deploy(self, version: str) -> None:
        """Start a deployment."""
        self.deploying, self.polls = version, 0

    def advance(self) -> None:
        """Advance the deployment by one read of the channel."""
        if self.deploying is None:
            return
        self.polls += 1
        if self.polls > POLLS:
            self.write("deploy-bot", f"deployment complete: {self.deploying}")
            self.deploying = None


def create_rooms() -> dict[str, Room]:
    """Create the channels with their first messages."""
    deployments = ChannelInfo(id="C123", name="deployments", topic="What goes out, and when")
    general = ChannelInfo(id="C200", name="general", topic="Everything else")
    rooms = {info.id: Room(info=info, messages=[]) for info in (deployments, general)}
    rooms["C123"].write("maria", "deploy web 1.42.0")
    rooms["C123"].write("deploy-bot", "deployment started: web 1.42.0")
    rooms["C123"].deploy("web 1.42.0")
    rooms["C200"].write("jonas", "Lunch at noon?")
    rooms["C200"].write("maria", "Yes!")
    return rooms


_rooms = create_rooms()


def find_room(channel: str) -> Room:
    """Return the channel with an id, name or #name. Raises ToolError if it does not exist."""
    for room in _rooms.values():
        if channel in (room.info.id, room.info.name, f"#{room.info.name}"):
            return room
    raise ToolError(f"channel_not_found: {channel!r}; known channels: {', '.join(_rooms)}")


@server.tool(annotations=READS)
def list_channels() -> list[ChannelInfo]:
    """List the channels."""
    return [room.info for room in _rooms.values()]


@server.tool(annotations=READS)
def get_channel_history(
    channel: Channel,
    limit: Annotated[int, Field(ge=1, le=MAX_MESSAGES, description="Maximum number of messages")] = 100,
) -> list[Message]:
    """Return the last messages of a channel, newest first."""
    room = find_room(channel)
    with room.lock:
        room.advance()
        return room.messages[::-1][:limit]


@server.tool(annotations=ADDS)
def post_message(
    channel: Channel, text: Annotated[str, Field(min_length=1, max_length=4000, description="Text of the message")]
) -> Message:
    """Post a message to a channel."""
    room = find_room(channel)
    with room.lock:
        message = room.write("mcp-exec", text)
        if text.lower().startswith("deploy "):
            version = text[7:].strip()
            room.write("deploy-bot", f"deployment started: {version}")
            room.deploy(version)
        return message


if __name__ == "__main__":
    run(server)
