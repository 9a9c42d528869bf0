"""HTTP: one page, and one route that answers a message by a stream of events."""

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

from anthropic import AnthropicError
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, StreamingResponse
from mcp_exec_client import McpExecError
from mcp_exec_client.agent import AgentError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chat_app.conversations import ChatRefused, Conversation, Conversations
from chat_app.loop import LoopFailed

log = logging.getLogger(__name__)
MAX_BODY = 16 * 1024
PAGE = Path(__file__).with_name("page.html").read_text()


class ChatMessage(BaseModel):
    """A message of the page."""

    model_config = ConfigDict(extra="forbid")

    message: str = Field(min_length=1, max_length=4000, pattern=r"\S")
    conversation: str | None = Field(default=None, max_length=64)
    use_code_execution: bool = False


async def read_message(request: Request) -> ChatMessage:
    """Return the message of a request. Its size is checked before it is parsed."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "the body must be application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise HTTPException(413, f"the body has more than {MAX_BODY} bytes")
    try:
        return ChatMessage.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise HTTPException(422, f"{field}: {first['msg']}") from error


class AnswerStream:
    """The events of one answer. It ends, with an error, if the answer takes too long."""

    def __init__(
        self, conversation: Conversation, *, message: str, seconds: float, tasks: set[asyncio.Task[None]]
    ) -> None:
        self._conversation = conversation
        self._message = message
        self._seconds = seconds
        self._tasks = tasks
        self._events: asyncio.Queue[str] = asyncio.Queue(maxsize=64)

    async def events(self) -> AsyncGenerator[str, None]:
        """Yield the events. The answer is cancelled, with the code that runs for it, if the page is gone."""
        task = asyncio.create_task(self._answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while True:
                event = await self._events.get()
                yield event
                if event.startswith(("event: done\n", "event: error\n")):
                    return
        finally:
            # not awaited: the server cancels this generator again and again, and the task has yet to cancel its code
            task.cancel()

    async def _answer(self) -> None:
        conversation = self._conversation
        await self._send("start", {"conversation": conversation.name})
        try:
            async with conversation.lock, asyncio.timeout(self._seconds):
                conversation.messages += 1
                await conversation.loop.answer(self._message, send=self._send)
        except (LoopFailed, AgentError, McpExecError, AnthropicError) as error:
            await self._send("error", {"message": str(error)[:1000]})
        except TimeoutError:
            await self._send("error", {"message": f"there was no answer within {self._seconds:g} seconds"})
        except Exception:
            log.exception("a message was not answered")
            await self._send("error", {"message": "the service failed; its log has the reason"})
        else:
            await self._send("done", {})

    async def _send(self, kind: str, fields: dict[str, Any]) -> None:
        await self._events.put(f"event: {kind}\ndata: {json.dumps(fields)}\n\n")


def build_app(*, conversations: Conversations, seconds: float = 180.0, max_answers: int = 8) -> FastAPI:
    """Return the service. At most `max_answers` are made at a time, each within `seconds`."""
    app = FastAPI(title="chat", docs_url=None, redoc_url=None, openapi_url=None)
    answers = asyncio.Semaphore(max_answers)
    tasks: set[asyncio.Task[None]] = set()
    policy = build_page_policy(PAGE)

    @app.get("/")
    async def show_page() -> HTMLResponse:
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"})

    @app.post("/api/chat")
    async def chat(message: Annotated[ChatMessage, Depends(read_message)]) -> StreamingResponse:
        if answers.locked():
            raise HTTPException(429, f"{max_answers} answers are being made; try again", headers={"Retry-After": "5"})
        try:
            found = conversations.find(message.conversation, use_code_execution=message.use_code_execution)
        except ChatRefused as error:
            raise HTTPException(error.status, str(error)) from error
        except LoopFailed as error:
            raise HTTPException(503, str(error)) from error
        stream = AnswerStream(found, message=message.message, seconds=seconds, tasks=tasks)

        async def limited() -> AsyncIterator[str]:
            async with answers, aclosing(stream.events()) as events:
                async for event in events:
                    yield event

        return StreamingResponse(limited(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return app


def build_page_policy(page: str) -> str:
    """Return a policy that allows the page's own script and style, and requests only to this service."""

    def digest(tag: str) -> str:
        text = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    own = f"script-src {digest('script')}; style-src {digest('style')}"
    return f"default-src 'none'; img-src data:; connect-src 'self'; {own}"
