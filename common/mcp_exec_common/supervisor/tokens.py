"""Bearer tokens of sandbox pods and stdio bridges, derived from one key."""

import hashlib
import hmac


def supervisor_token(*, key: bytes, namespace: str, pod: str) -> str:
    """The bearer token of one pod. Its SHA-256 is all that the pod knows of it."""
    return hmac.new(key, f"{namespace}/{pod}".encode(), hashlib.sha256).hexdigest()


def token_digest(token: str) -> str:
    """What the pod is given to check the token with."""
    return hashlib.sha256(token.encode()).hexdigest()


def bridge_token(*, key: bytes, namespace: str, name: str) -> str:
    """What the broker shows the bridge. The bridge knows its SHA-256 alone."""
    return hmac.new(key, f"bridge:{namespace}/{name}".encode(), hashlib.sha256).hexdigest()
