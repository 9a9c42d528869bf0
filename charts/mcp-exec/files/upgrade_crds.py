"""Upgrade of the cluster's CustomResourceDefinitions to this chart's version: patches or creates each of them."""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RESOURCE = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def call(method: str, path: str, body: dict[str, Any], *, content_type: str) -> None:
    """Send one request to the API server. Raises HTTPError if the server rejects it."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    address = f"[{host}]" if ":" in host else host
    request = urllib.request.Request(
        f"https://{address}:{os.environ['KUBERNETES_SERVICE_PORT']}{path}",
        method=method,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": content_type},
    )
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    urllib.request.urlopen(request, timeout=30, context=trust).close()


def main() -> None:
    """Apply all definitions. Exit with the API server's message if it rejects one."""
    for path in sorted(Path("/crds").glob("*.json")):
        crd = json.loads(path.read_text())
        name = crd["metadata"]["name"]
        try:
            try:
                call("PATCH", f"{RESOURCE}/{name}", crd, content_type="application/merge-patch+json")
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
                call("POST", RESOURCE, crd, content_type="application/json")
        except urllib.error.HTTPError as error:
            sys.exit(f"{name}: {error.code} {error.read(4096).decode(errors='replace')}")
        sys.stdout.write(f"{name} is up to date\n")


main()
