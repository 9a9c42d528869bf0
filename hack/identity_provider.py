"""Identity providers in the cluster of `make up`, for `make demo IDENTITY=yes` and tests/e2e.

python -m hack.identity_provider install     installs the provider `corp`, and writes the chart's values for it
python -m hack.identity_provider show URL    prints how people sign in at the gateway at URL

A provider is a Deployment of the image that `hack/images identity` builds from tests/identity. Its issuer has one
address for pods, for this machine and for browsers here: a port of a node. What it keeps is lost when its pod ends.
"""

import base64
import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.certificates import certificates_for
from tests.support.constants import AUDIENCE
from tests.support.pace import paced
from tests.support.sign_in import KNOWN, IdentityProvider

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".cache" / "identity"
NAMESPACE: Final = "mcp-exec-identity"
CORP: Final = "corp"
PORTS: Final = {CORP: 32443, "partner": 32444, "elsewhere": 32445}
"""Ports by the names of providers. NetworkPolicies see the container's port and not the node's: it is the same."""
GROUPS: Final = {"alice": ["developers"], "bob": [], "carol": ["developers", "leads"]}
"""Groups of the people of each provider."""
RULES: Final[tuple[dict[str, Any], ...]] = (
    {"groups": [f"oidc/{CORP}/leads"], "namespaces": ["agents"], "approver": True},
    {"groups": [f"oidc/{CORP}/developers"], "namespaces": ["agents"]},
)
"""What the people may do in the demo."""
SCOPES: Final = ("openid", "offline_access")
"""What clients ask for: with the second, they get tokens without their user when one ends."""
_DAYS: Final = 365
_SECONDS: Final = paced(180)


class IdentityError(Exception):
    """Why there is no identity provider."""


@dataclass(frozen=True, kw_only=True)
class Installed(IdentityProvider):
    """A provider that runs in the cluster."""

    name: str


def load_image() -> None:
    """Build the image and load it into the nodes. Raises IdentityError on a cluster that `make up` did not make."""
    if _run(str(ROOT / "hack/cluster"), "kind-of").strip() == "existing":
        raise IdentityError("an identity provider needs a cluster of kind or devcluster, which has its image")
    for command in (("hack/images", "identity"), ("hack/cluster", "load", "identity")):
        subprocess.run([ROOT / command[0], *command[1:]], check=True, stdout=sys.stderr)


def install(name: str) -> Installed:
    """Install a provider, or leave it as it is, and wait until this machine reaches it.

    Raises IdentityError if it does not become ready. The image must be loaded.
    """
    port = PORTS[name]
    url = f"https://{_find_node_address()}:{port}"
    found = _find(name)
    if found is None or found.url != url:
        ca, certificate = certificates_for(url.split("/")[-1].rpartition(":")[0], days=_DAYS)
        people = {each: {"password": secrets.token_urlsafe(9), "groups": groups} for each, groups in GROUPS.items()}
        configuration = {
            "issuer": url,
            "port": port,
            "certificate": certificate,
            "audience": AUDIENCE,
            "people": people,
        }
        _apply(_namespace(), _secret(name, json.dumps(configuration), ca))
        found = _find(name)
        assert found is not None
    digest = hashlib.sha256(json.dumps([found.ca, found.passwords]).encode()).hexdigest()
    _apply(_service(name, port), _deployment(name, port, digest))
    _run("kubectl", "rollout", "status", f"deployment/{name}", "-n", NAMESPACE, f"--timeout={_SECONDS:.0f}s")
    _reach(found)
    return found


def rotate_key(name: str) -> None:
    """Let a provider sign with another key, and forget the former one."""
    _run("kubectl", "exec", "-n", NAMESPACE, f"deployment/{name}", "--", "sh", "-c", "kill -HUP 1")


def show(gateway: str) -> str:
    """Return what a user has to know to sign in at a gateway. Raises IdentityError if no provider is installed."""
    if (found := _find(CORP)) is None:
        raise IdentityError(f"there is no identity provider in the namespace {NAMESPACE}")
    people = "\n".join(
        f"     {name:6} {password:13} {_may(GROUPS[name])}" for name, password in sorted(found.passwords.items())
    )
    ca = FOLDER / "ca.pem"
    return f"""\
Sign in at {gateway}/mcp

1. Start your MCP client with the provider's authority, because the certificate is of none that your system knows:
     export NODE_EXTRA_CA_CERTS={ca}
2. Give it the address and nothing else:
     Claude Code: claude mcp add --transport http mcp-exec {gateway}/mcp, then /mcp in a session
     Cursor, in .cursor/mcp.json: {{"mcpServers": {{"mcp-exec": {{"url": "{gateway}/mcp"}}}}}}
     VS Code, in .vscode/mcp.json: {{"servers": {{"mcp-exec": {{"type": "http", "url": "{gateway}/mcp"}}}}}}
   It registers itself. A client that cannot has the client id `{KNOWN}`, without a secret.
3. Your browser opens {found.url}. Accept its certificate, and sign in:
{people}
4. Ask the client to run code. The column CALLER shows who did:
     kubectl get cex -n agents -o wide
"""


def _may(groups: list[str]) -> str:
    if "leads" in groups:
        return "may run code in the namespace agents, and decide on approvals"
    return "may run code in the namespace agents" if "developers" in groups else "may do nothing"


def _find_node_address() -> str:
    nodes = json.loads(_run("kubectl", "get", "nodes", "-o", "json"))["items"]
    return next(
        str(each["address"]) for node in nodes for each in node["status"]["addresses"] if each["type"] == "InternalIP"
    )


def _find(name: str) -> Installed | None:
    text = _run("kubectl", "get", "secret", name, "-n", NAMESPACE, "--ignore-not-found", "-o", "json")
    if not text.strip():
        return None
    data = {key: base64.b64decode(value).decode() for key, value in json.loads(text)["data"].items()}
    configuration = json.loads(data["configuration.json"])
    passwords = {person: each["password"] for person, each in configuration["people"].items()}
    return Installed(name=name, url=configuration["issuer"], ca=data["ca.pem"], passwords=passwords)


def _reach(provider: Installed) -> None:
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=provider.tls),
    )
    end = time.monotonic() + paced(60)
    while True:
        try:
            with opener.open(f"{provider.url}/.well-known/openid-configuration", timeout=5):
                return
        except OSError as error:
            if time.monotonic() > end:
                raise IdentityError(f"this machine does not reach {provider.url}: {error}") from error
            time.sleep(0.5)


def _namespace() -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _secret(name: str, configuration: str, ca: str) -> dict[str, Any]:
    content = {"configuration.json": configuration, "ca.pem": ca}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(name), "stringData": content}


def _service(name: str, port: int) -> dict[str, Any]:
    ports = [{"port": port, "targetPort": port, "nodePort": port}]
    spec = {"type": "NodePort", "selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name), "spec": spec}


def _deployment(name: str, port: int, digest: str) -> dict[str, Any]:
    container = {
        "name": "provider",
        "image": f"localhost/mcp-exec-identity:{os.environ.get('TAG') or 'dev'}",
        "imagePullPolicy": "Never",
        "readinessProbe": {
            "httpGet": {"scheme": "HTTPS", "port": port, "path": "/.well-known/openid-configuration"},
            "periodSeconds": 1,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/identity", "readOnly": True}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "configuration", "secret": {"secretName": name, "defaultMode": 0o440}}],
    }
    template = {"metadata": {"labels": {"app": name}, "annotations": {"configuration": digest}}, "spec": pod}
    # Two pods would have two keys at one address.
    spec = {"strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(name), "spec": spec}


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE}


def _apply(*manifests: dict[str, Any]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    _run("kubectl", "apply", "-f", "-", stdin=json.dumps(listed))


def _run(*command: str, stdin: str | None = None) -> str:
    """Return what a command prints. Raises IdentityError with its message if it fails."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=_SECONDS + 60)
    if done.returncode:
        raise IdentityError(f"{command[0]} {command[1]} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout


def main(arguments: list[str]) -> None:
    """Run the command of the arguments."""
    match arguments:
        case ["install"]:
            load_image()
            found = install(CORP)
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / "ca.pem").write_text(found.ca)
            values = {"gateway": {"oidc": {"issuers": [found.configure(CORP)], "scopes": SCOPES}, "rules": RULES}}
            (FOLDER / "values.json").write_text(json.dumps(values, indent=1))
        case ["show", gateway]:
            print(show(gateway), end="")
        case _:
            raise IdentityError("usage: python -m hack.identity_provider install | show URL")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except IdentityError as problem:
        sys.exit(f"hack/identity_provider.py: {problem}")
