"""Print the ToolServers that the tasks call, as JSON for `kubectl apply -f -`.

toolservers.py IMAGE RUNTIMECLASS [NAME...] leaves those of the names out. An empty RUNTIMECLASS is the cluster's own.
"""

import json
import sys
from pathlib import Path

DEMO = ("expenses", "sheets", "slack", "trips")


def build(image: str, runtime: str | None = None, *, namespace: str = "agents") -> list[dict]:
    """Return the manifests."""
    commands = {name: ["python3", "-m", f"mcp_exec_servers.{name}"] for name in DEMO}
    for name in ("github", "supabase"):  # stand-ins, which need no network
        commands[name] = ["python3", "-c", Path(__file__).with_name(f"{name}_server.py").read_text()]
    commands["filesystem"] = ["mcp-server-filesystem", "/data"]
    commands["announcements"] = ["python3", "-m", "mcp_exec_servers.slack"]
    # the others hold nothing of value, so that nobody has to approve what they change
    rules = dict.fromkeys(commands, [{"tools": ["*"], "action": "Allow"}])
    rules["announcements"] = [{"tools": ["post_message"], "action": "Approve"}]
    return [
        {
            "apiVersion": "mcp-exec.dev/v1beta1",
            "kind": "ToolServer",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "stdio": {
                    "image": image,
                    "command": command,
                    **({"runtimeClassName": runtime} if runtime else {}),
                    **({"dataSize": "64Mi"} if name == "filesystem" else {}),
                },
                "policy": {"rules": rules[name]},
            },
        }
        for name, command in commands.items()
    ]


if __name__ == "__main__":
    image, runtime, *left_out = sys.argv[1:]
    items = [each for each in build(image, runtime) if each["metadata"]["name"] not in left_out]
    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1))
