"""Bearer tokens of sandbox pods and stdio bridges, derived from the release's key with HMAC-SHA-256."""

import hashlib
import hmac


def supervisor_token(*, key: bytes, namespace: str, pod: str) -> str:
    """Return the bearer token of one pod's supervisor. The pod itself knows only its digest."""
    return _derive_token(key, f"{namespace}/{pod}")


def bridge_token(*, key: bytes, namespace: str, name: str) -> str:
    """Return the bearer token of a ToolServer's stdio bridge. The bridge itself knows only its digest."""
    return _derive_token(key, f"bridge:{namespace}/{name}")


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
