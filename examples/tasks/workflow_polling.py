"""Workflow: code waits for a message in a channel. However often it looks, a model reads one line."""

from saving import run_task

CODE = """
import asyncio
from servers.slack import get_channel_history, post_message

await post_message({"channel": "C123", "text": f"deploy {release}"})
looks, found = 0, False
while not found:
    messages = await get_channel_history({"channel": "C123", "limit": 20})
    looks += 1
    found = any(message["text"] == f"deployment complete: {release}" for message in messages)
    if not found:
        await asyncio.sleep(0.1)
f"{release} is out after {looks} looks"
"""


def task(client):
    return [client.run(CODE, tools=["slack.*"], context={"release": "web 1.43.0"}, use_case="polling")]


if __name__ == "__main__":
    run_task(task)
