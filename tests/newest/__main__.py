"""Lets the newest API server serve a devcluster's custom resources of mcp-exec while a command runs.

    python -m tests.newest COMMAND [ARGUMENT...]

KUBECONFIG names the cluster, APIEXTENSIONS_APISERVER the server's executable. The cluster's own API server hands the
group over, as it does to any aggregated API (https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/),
and has it back, without any object in it, when the command has ended.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp_exec_api.constants import GROUP, VERSION
from tests.newest.server import Core, define, serving

_NAME = "newest"
_PORT = 443


def main(command: list[str]) -> int:
    """The command's exit code. Raises SystemExit where the cluster serves the group itself already."""
    if GROUP in _kubectl("get", "apiservices", "-o", "name"):
        sys.exit(f"the cluster serves {GROUP} itself already: take one that is new (make down)")
    kubeconfig, binary = Path(os.environ["KUBECONFIG"]), Path(os.environ["APIEXTENSIONS_APISERVER"])
    with tempfile.TemporaryDirectory() as folder:
        core = Core(kubeconfig=kubeconfig, address=_node_address())
        with serving(binary, Path(folder), core=core) as client:
            define(client)
            with _handed_over(core.address, client.base_url.port or _PORT):
                return subprocess.run(command, check=False).returncode


@contextmanager
def _handed_over(address: str, port: int) -> Iterator[None]:
    service = {"namespace": "default", "name": _NAME, "port": _PORT}
    spec = {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 1000, "versionPriority": 100}
    api_service = f"{VERSION}.{GROUP}"
    metadata = {"name": _NAME, "namespace": "default"}
    # Endpoints, not a slice: the API server of Kubernetes 1.20 looks for them before it calls an API service
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata,
         "spec": {"ports": [{"port": _PORT, "targetPort": port}]}},
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata,
         "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": port}]}]},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": api_service},
         "spec": spec | {"service": service, "insecureSkipTLSVerify": True}},
    ]  # fmt: skip
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    try:
        _kubectl("apply", "-f", "-", stdin=listed)
        _kubectl("wait", f"apiservice/{api_service}", "--for=condition=Available", "--timeout=60s")
        yield
    finally:
        _kubectl("delete", "--ignore-not-found", "-f", "-", stdin=listed)


def _node_address() -> str:
    nodes = json.loads(_kubectl("get", "nodes", "-o", "json"))["items"]
    addresses = [each for node in nodes for each in node["status"]["addresses"] if each["type"] == "InternalIP"]
    address: str = addresses[0]["address"]
    return address


def _kubectl(*arguments: str, stdin: str | None = None) -> str:
    return subprocess.run(
        ("kubectl", *arguments), input=stdin, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    ).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
