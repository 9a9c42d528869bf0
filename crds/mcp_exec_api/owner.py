"""Owner of what outlives a run: a sandbox that is used again, a session, a workspace."""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_DIGEST_CHARACTERS: Final = 32
_SUFFIX_CHARACTERS: Final = 12
"""With a name of 50 characters they fill a label. Fewer could be found by trying users."""
_QUALIFIED: Final = re.compile(rf"-[0-9a-f]{{{_SUFFIX_CHARACTERS}}}\Z")


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whoever may use a thing again: nobody else ever does, whatever they name it."""

    namespace: str
    caller: str = ""
    """Caller, as authenticated by the gateway. Empty for all who create executions through the Kubernetes API: in one
    namespace they have the same rights. A name without a proof is no caller."""
    user: str = ""
    """User on whose behalf the code runs, as in `spec.user`."""

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits that stand for the owner in labels, paths and jobs. It is no secret."""
        text = json.dumps([self.namespace, self.caller, self.user], separators=(",", ":"))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]

    @cached_property
    def caller_digest(self) -> str:
        """Digest of the caller, whatever user it names: what all of its owners have in common."""
        return Owner(namespace=self.namespace, caller=self.caller).digest

    def qualify(self, name: str) -> str:
        """Return the object's name for what this owner calls `name`: owners in one namespace never collide.

        Who uses the Kubernetes API without a user names objects directly.
        """
        return f"{name}-{self.digest[:_SUFFIX_CHARACTERS]}" if self._is_qualified else name

    def may_name(self, name: str) -> bool:
        """Return whether this owner's `name` can't be the qualified name of another owner."""
        return self._is_qualified or _QUALIFIED.search(name) is None

    @property
    def _is_qualified(self) -> bool:
        return bool(self.caller or self.user)
