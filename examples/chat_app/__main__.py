"""Command of the chat service: `python -m chat_app --offline` in the folder examples."""

import argparse
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from anthropic import AnthropicError, AsyncAnthropic
from fastapi import FastAPI
from mcp_exec_client import AsyncClient
from mcp_exec_client.agent import DEFAULT_MODEL

from chat_app.conversations import Conversations
from chat_app.loop import ChatLoop
from chat_app.scripted_model import open_http
from chat_app.service import build_app


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="chat_app", description=__doc__)
    parser.add_argument("--offline", action="store_true", help="use a scripted model, without a key")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="model of Anthropic's API")
    parser.add_argument("--host", default="127.0.0.1", help="address; the service authenticates nobody")
    parser.add_argument("--port", type=int, default=8090, help="port")
    options = parser.parse_args()
    try:
        anthropic = AsyncAnthropic(api_key="offline", http_client=open_http()) if options.offline else AsyncAnthropic()
    except AnthropicError as error:
        sys.exit(f"{error}; --offline needs no key")
    client = AsyncClient() if os.environ.get("MCP_EXEC_GATEWAY") else None

    def make_loop(conversation: str, use_code_execution: bool) -> ChatLoop:
        return ChatLoop(
            anthropic=anthropic,
            model=options.model,
            use_code_execution=use_code_execution,
            client=client,
            user="demo",  # an application with logins passes on its user
            conversation=conversation,
            is_offline=options.offline,
        )

    app = build_app(conversations=Conversations(make_loop=make_loop))

    @asynccontextmanager
    async def close_clients(app: FastAPI) -> AsyncIterator[None]:
        yield
        await anthropic.close()
        if client is not None:
            await client.aclose()

    app.router.lifespan_context = close_clients
    uvicorn.run(app, host=options.host, port=options.port, timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main()
