"""Runs code through the gateway: ask.py URL < CODE, with the API key in MCP_EXEC_API_KEY. Prints the answer's gist."""

import json
import os
import sys

import httpx

GIST = ("name", "phase", "reason", "start", "durations", "output", "error")


def main() -> None:
    """Posts standard input, prints what came of it; fails with the whole answer where that is no execution."""
    response = httpx.post(
        f"{sys.argv[1]}/v1/executions",
        params={"wait": "60"},
        headers={"Authorization": f"Bearer {os.environ['MCP_EXEC_API_KEY']}"},
        json={"code": sys.stdin.read()},
        timeout=90,
    )
    answer = response.json()
    if response.status_code == 200:
        answer = {name: answer[name] for name in GIST if answer.get(name)}
    print(json.dumps(answer, indent=2))
    sys.exit(0 if response.status_code == 200 else 1)


if __name__ == "__main__":
    main()
