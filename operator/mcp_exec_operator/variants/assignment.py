"""Assignment of callers to the variants of a pool, by weighted rendezvous hashing. Pure.

Each variant gets a score from its name, the caller's key and its weight; the highest score wins. So a caller always
gets the same variant, and a changed weight moves only callers to the variant whose weight rose, or away from the one
whose weight fell: as few as the shares allow.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Final

_BITS: Final = 52
"""Bits of the digest that are used: with one half added, a float represents them exactly."""


def assign_variant(key: str, weights: Mapping[str, int], *, pool: str) -> str:
    """Return the variant of a caller among those with a weight above 0. Raises ValueError if there is none.

    `pool` is NAMESPACE/NAME: two pools assign the same callers independently, and a pool that is deleted and created
    again assigns them as before.
    """
    weighted = [name for name, weight in weights.items() if weight > 0]
    return max(weighted, key=lambda name: _score(pool, name, key, weights[name]))


def _score(pool: str, name: str, key: str, weight: int) -> float:
    digest = hashlib.sha256("\0".join((pool, name, key)).encode("utf-8", "surrogatepass")).digest()
    uniform = ((int.from_bytes(digest[:8], "big") >> (64 - _BITS)) + 0.5) / 2**_BITS
    return -weight / math.log(uniform)
