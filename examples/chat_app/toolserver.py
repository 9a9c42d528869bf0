"""Print the ToolServer of the shop's tools, as JSON for `kubectl apply -f -`.

toolserver.py IMAGE [RUNTIMECLASS]
"""

import json
import sys
from pathlib import Path
from typing import Any


def build(image: str, runtime: str = "", *, namespace: str = "agents") -> dict[str, Any]:
    """Return the manifest."""
    source = Path(__file__).with_name("shop.py").read_text()
    stdio = {"image": image, "command": ["python3", "-c", source]}
    # the data is invented, so that nobody has to approve a ticket
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "ToolServer",
        "metadata": {"name": "shop", "namespace": namespace},
        "spec": {
            "stdio": {**stdio, **({"runtimeClassName": runtime} if runtime else {})},
            "policy": {"rules": [{"tools": ["*"], "action": "Allow"}]},
        },
    }


if __name__ == "__main__":
    print(json.dumps(build(*sys.argv[1:]), indent=1))
