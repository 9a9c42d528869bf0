"""Bearer tokens of sandbox pods and stdio bridges, derived from the release's key with HMAC-SHA-256."""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from mcp_exec_common.kube.objects import Object

_DIGEST_VARIABLE: Final = "MCP_EXEC_TOKEN_SHA256"


def supervisor_token(*, key: bytes, namespace: str, pod: str) -> str:
    """Return the bearer token of one pod's supervisor. The pod itself knows only its digest."""
    return _derive_token(key, f"{namespace}/{pod}")


def read_token_digest(pod: Object) -> str:
    """Return the digest of its token that a sandbox pod has, or an empty text if it has none or several."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    variables = containers[0].get("env") or ()
    values = [each.get("value") for each in variables if each.get("name") == _DIGEST_VARIABLE]
    return str(values[0]) if len(values) == 1 else ""


def find_supervisor_token(*, keys: Iterable[bytes], namespace: str, pod: str, digest: str) -> str:
    """Return the token of one pod's supervisor that has this digest: the pod may be older than the signing key.

    If there is none, it is that of the signing key, the first. Its supervisor can't prove itself.
    """
    tokens = [supervisor_token(key=key, namespace=namespace, pod=pod) for key in keys]
    return next((token for token in tokens if token_digest(token) == digest), tokens[0])


def bridge_token(*, key: bytes, namespace: str, name: str, pod: str) -> str:
    """Return the token of the stdio bridge in a ToolServer's pod with this uid. The bridge knows only its digest.

    It opens no other pod, so that who takes the address of one that is gone has nothing of use.
    """
    return _derive_token(key, f"bridge:{namespace}/{name}/{pod}")


def pod_seal(*, key: bytes, namespace: str, pod: str, uid: str, digest: str) -> str:
    """Return the proof that an operator created the pod with this uid, confined as the digest says.

    It is useless for another pod.
    """
    return _derive_token(key, f"seal:{namespace}/{pod}/{uid}/{digest}")


def owner_seal(*, key: bytes, namespace: str, pod: str, uid: str, owner: str) -> str:
    """Return the proof that an operator wrote that the pod with this uid serves the owner of this digest."""
    return _derive_token(key, f"owner:{namespace}/{pod}/{uid}/{owner}")


def token_digest(token: str) -> str:
    """Return the SHA-256 of a token, for its receiver to check it."""
    return hashlib.sha256(token.encode()).hexdigest()


def _derive_token(key: bytes, subject: str) -> str:
    return hmac.new(key, subject.encode(), hashlib.sha256).hexdigest()
