"""OpenAI Agents SDK: the gateway is an MCP server of the agent."""

import asyncio
import os

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp

TASK = "How many expenses of u-42 are above 100 dollars?"


async def main() -> None:
    set_tracing_disabled(True)  # nothing but the model's requests leaves this machine
    server = MCPServerStreamableHttp(
        {
            "url": f"{os.environ['MCP_EXEC_GATEWAY']}/mcp?tools=expenses.*",
            "headers": {"Authorization": f"Bearer {os.environ['MCP_EXEC_API_KEY']}"},
        },
        cache_tools_list=True,  # with mode=code it never changes
        client_session_timeout_seconds=300,  # a run may take so long
    )
    async with server:
        prompt = (await server.get_prompt("code-mode")).messages[0].content.text
        agent = Agent("analyst", instructions=prompt, mcp_servers=[server], model=os.environ.get("LLM_MODEL"))
        done = await Runner.run(agent, TASK, max_turns=8)
    for item in done.new_items:
        if item.type == "tool_call_item":
            print(f"-> {item.raw_item.name}")
    print(done.final_output)


if __name__ == "__main__":
    asyncio.run(main())
