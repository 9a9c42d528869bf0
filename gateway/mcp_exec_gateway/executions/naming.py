"""Names of executions that the gateway creates, and the annotations that identify a creation."""

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.constants import GROUP

ANNOTATION_REQUEST: Final = f"{GROUP}/request-id"
"""Id of the request that created an execution; shows whether a creation without a response was carried out."""
ANNOTATION_IDEMPOTENCY: Final = f"{GROUP}/idempotency-key"
"""Digest of namespace, caller and Idempotency-Key."""
ANNOTATION_DIGEST: Final = f"{GROUP}/request-digest"
"""Digest of the spec as requested; the API server may store numbers in another form."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 12
_RANDOM_BITS: Final = 10
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def _encode_base32(number: int) -> str:
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


@dataclass(kw_only=True)
class ExecutionNamer:
    """Creates names such as `exec-01k9x3v5t8q2` that sort by time: milliseconds, then random bits.

    A process never creates a name twice. Two replicas can create the same name within a millisecond: the API server
    then rejects the second, which tries another name.
    """

    clock: Callable[[], float] = time.time
    _last: int = field(default=0, init=False)

    def create_name(self) -> str:
        """Create a new name."""
        number = (int(self.clock() * 1000) << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        self._last = number if number > self._last else self._last + 1
        return "exec-" + _encode_base32(self._last)


def digest_idempotency_key(*, namespace: str, caller: str, key: str) -> str:
    """Return the digest of one caller's Idempotency-Key in one namespace."""
    return hashlib.sha256("\0".join((namespace, caller, key)).encode()).hexdigest()


def derive_name(idempotency_digest: str) -> str:
    """Return the name of the execution that belongs to an Idempotency-Key."""
    return "exec-" + _encode_base32(int(idempotency_digest[:15], 16))


def is_object_name(name: str) -> bool:
    """Return whether an object can have this name. Other text must not become part of an API server path."""
    return _OBJECT_NAME.fullmatch(name) is not None
