"""Names that the gateway gives: of executions, and of callers as label values."""

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.constants import GROUP

ANNOTATION_REQUEST: Final = f"{GROUP}/request-id"
"""The request that created an execution: tells whether a creation whose answer was lost was carried out."""
ANNOTATION_IDEMPOTENCY: Final = f"{GROUP}/idempotency-key"
"""Digest of namespace, caller and Idempotency-Key."""
ANNOTATION_DIGEST: Final = f"{GROUP}/request-digest"
"""Digest of the spec as it was asked for; the API server may write numbers otherwise."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 12
_RANDOM_BITS: Final = 10
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_OBJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def _base32(number: int) -> str:
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


@dataclass(kw_only=True)
class Namer:
    """Makes names such as `exec-01k9x3v5t8q2` that sort by time: milliseconds, then random bits.

    Within a process none comes twice. Two replicas may meet within one millisecond: the API server then refuses the
    second, which takes another name.
    """

    clock: Callable[[], float] = time.time
    _last: int = field(default=0, init=False)

    def new(self) -> str:
        """A new name."""
        made = (int(self.clock() * 1000) << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        self._last = made if made > self._last else self._last + 1
        return "exec-" + _base32(self._last)


def idempotency_digest(*, namespace: str, caller: str, key: str) -> str:
    """What stands for an Idempotency-Key of one caller in one namespace."""
    return hashlib.sha256("\0".join((namespace, caller, key)).encode()).hexdigest()


def idempotent_name(digest: str) -> str:
    """The name of the execution that an Idempotency-Key stands for."""
    return "exec-" + _base32(int(digest[:15], 16))


def caller_label(name: str) -> str:
    """A caller's name as a label value; what had to be changed or cut ends with a digest, so that none meet."""
    if _LABEL.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9_.-]", ".", name)[:54].strip("-_.") or "caller"
    if plain == name.replace(":", ".") and name.startswith("system:serviceaccount:"):
        return plain  # no key's name begins with "system."
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def is_object_name(name: str) -> bool:
    """Whether an object can have this name; nothing else may become a part of an API server's path."""
    return _OBJECT.fullmatch(name) is not None
