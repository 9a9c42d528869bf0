"""The tokens that stand for personal data, by execution."""

from collections.abc import Callable
from time import monotonic
from typing import Final

from mcp_exec_broker.recent import Recent
from mcp_exec_broker.scanning.tokenizer import Tokenizer

_KEEP_SECONDS: Final = 3600.0
_KEEP: Final = 2000


class TokenizerCache:
    """One vault an execution; each is forgotten when its execution ends, or an hour after its last call."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._kept: Recent[str, Tokenizer] = Recent(
            keep_seconds=_KEEP_SECONDS, keep=_KEEP, held=lambda vault: False, clock=clock
        )

    def of(self, uid: str) -> Tokenizer:
        """The execution's vault; made by its first call."""
        vault = self._kept.get(uid)
        if vault is None:
            vault = Tokenizer()
        self._kept.put(uid, vault)
        return vault
