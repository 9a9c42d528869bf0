"""Claude Agent SDK: the gateway is an MCP server, and Claude has no other tool than those of it."""

import asyncio
import os

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, ToolUseBlock, query

TASK = "How many expenses of u-42 are above 100 dollars?"


async def main() -> None:
    options = ClaudeAgentOptions(
        mcp_servers={
            "mcp-exec": {
                "type": "http",
                "url": f"{os.environ['MCP_EXEC_GATEWAY']}/mcp?tools=expenses.*",
                "headers": {"Authorization": f"Bearer {os.environ['MCP_EXEC_API_KEY']}"},
            }
        },
        tools=[],  # no shell, no files of this machine
        allowed_tools=["mcp__mcp-exec__*"],
        setting_sources=[],
        strict_mcp_config=True,
        max_turns=8,
    )
    async for message in query(prompt=TASK, options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    print(f"-> {block.name}")
                elif isinstance(block, TextBlock):
                    print(block.text)
        elif isinstance(message, ResultMessage) and message.is_error:
            raise SystemExit(message.result or message.subtype)


if __name__ == "__main__":
    asyncio.run(main())
