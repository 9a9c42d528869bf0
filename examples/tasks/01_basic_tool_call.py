"""01: the code looks which tools there are, as files, and calls one of them. One small call: code does not pay here."""

from saving import run_task

CODE = """
import os
import servers
from servers.expenses import list_categories

print("servers:", *sorted(name for name in os.listdir(servers.__path__[0]) if not name.startswith("_")))
await list_categories()
"""


def task(client):
    return [client.run(CODE, tools=["expenses.*"], use_case="other")]


if __name__ == "__main__":
    run_task(task)
