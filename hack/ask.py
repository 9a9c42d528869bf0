"""Runs code through the gateway: ask.py URL < CODE, with the API key in MCP_EXEC_API_KEY. Prints the answer."""

import json
import os
import sys

import httpx


def main() -> None:
    """Posts standard input, prints the gateway's JSON, fails on any other answer."""
    response = httpx.post(
        f"{sys.argv[1]}/v1/executions",
        params={"wait": "60"},
        headers={"Authorization": f"Bearer {os.environ['MCP_EXEC_API_KEY']}"},
        json={"code": sys.stdin.read()},
        timeout=90,
    )
    print(json.dumps(response.json(), indent=2))
    sys.exit(0 if response.status_code == 200 else 1)


if __name__ == "__main__":
    main()
