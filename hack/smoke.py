"""Run code through the gateway and print the main fields of the execution.

smoke.py URL < CODE, with an API key in the environment variable MCP_EXEC_API_KEY
"""

import json
import os
import sys

import httpx

FIELDS = ("name", "phase", "reason", "start", "durations", "output", "error")


def main() -> None:
    """Post standard input and print the result. Exit with 1 if the code did not succeed or printed nothing."""
    response = httpx.post(
        f"{sys.argv[1]}/v1/executions",
        params={"wait": "60"},
        headers={"Authorization": f"Bearer {os.environ['MCP_EXEC_API_KEY']}"},
        json={"code": sys.stdin.read()},
        timeout=90,
    )
    content = response.json()
    if response.status_code == 200:
        content = {name: content[name] for name in FIELDS if content.get(name)}
    print(json.dumps(content, indent=2))
    has_printed = bool((content.get("output") or {}).get("stdout"))
    sys.exit(0 if content.get("phase") == "Succeeded" and has_printed else 1)


if __name__ == "__main__":
    main()
