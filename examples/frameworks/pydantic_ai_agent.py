"""Pydantic AI: the gateway is an MCP toolset of the agent, and the answer is a model of Pydantic."""

import asyncio
import os

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

TASK = "How many expenses of u-42 are above 100 dollars?"


class Answer(BaseModel):
    """The answer, checked by Pydantic."""

    count: int


async def main() -> None:
    tools = MCPToolset(
        f"{os.environ['MCP_EXEC_GATEWAY']}/mcp?tools=expenses.*",
        headers={"Authorization": f"Bearer {os.environ['MCP_EXEC_API_KEY']}"},
        include_instructions=True,
        read_timeout=300,  # a run may take so long
    )
    model = f"anthropic:{os.environ.get('LLM_MODEL', 'claude-sonnet-5-5')}"
    agent = Agent(model, toolsets=[tools], output_type=Answer)
    async with agent:
        done = await agent.run(TASK)
    for message in done.all_messages():
        for part in message.parts:
            if part.part_kind == "tool-call":
                print(f"-> {part.tool_name}")
    print(f"The count is {done.output.count}.")


if __name__ == "__main__":
    asyncio.run(main())
