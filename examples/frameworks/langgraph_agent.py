"""LangChain and LangGraph: the gateway's tools by `langchain-mcp-adapters`, in LangChain's agent, which is a graph."""

import asyncio
import os

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_mcp_adapters.client import MultiServerMCPClient

TASK = "How many expenses of u-42 are above 100 dollars?"


async def main() -> None:
    client = MultiServerMCPClient(
        {
            "mcp-exec": {
                "transport": "streamable_http",
                "url": f"{os.environ['MCP_EXEC_GATEWAY']}/mcp?tools=expenses.*",
                "headers": {"Authorization": f"Bearer {os.environ['MCP_EXEC_API_KEY']}"},
            }
        }
    )
    model = ChatAnthropic(model_name=os.environ.get("LLM_MODEL", "claude-sonnet-5-5"), max_tokens_to_sample=16_000)
    # one MCP session for the whole task: `client.get_tools()` would open one for each call
    async with client.session("mcp-exec") as session:
        from langchain_mcp_adapters.tools import load_mcp_tools

        prompt = (await session.get_prompt("code-mode")).messages[0].content.text
        agent = create_agent(model, await load_mcp_tools(session), system_prompt=prompt)
        done = await agent.ainvoke({"messages": [{"role": "user", "content": TASK}]})
    for message in done["messages"]:
        for call in getattr(message, "tool_calls", ()):
            print(f"-> {call['name']}")
    print(done["messages"][-1].text)


if __name__ == "__main__":
    asyncio.run(main())
