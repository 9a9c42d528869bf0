"""Which variant of a pool a caller gets, and how many of the pool's warm pods are each variant's. Pure.

Assignment is by weighted rendezvous hashing: each variant draws a number from its name and the caller's key, weighs it,
and the highest wins. So a caller always gets the same, and a weight that changes moves no caller but those that come to
the variant whose weight rose, or leave the one whose weight fell: as few as the shares allow.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Final

_BITS: Final = 52
"""Bits of the digest that are used: with one half added, a float still has them all."""


def assign(key: str, weights: Mapping[str, int], *, pool: str) -> str:
    """The variant of a caller, one of those that weigh more than 0. Raises ValueError where none does.

    `pool` is NAMESPACE/NAME: two pools assign the same callers independently of each other, and a pool that is made
    again as it was assigns them as before.
    """
    weighing = [name for name, weight in weights.items() if weight > 0]
    return max(weighing, key=lambda name: _score(pool, name, key, weights[name]))


def shares(desired: int, weights: Mapping[str, int]) -> dict[str, int]:
    """How many of `desired` pods are each variant's: by weight, by the method of the largest remainder.

    One that weighs more than 0 has at least one where there is one for each; one that weighs 0 has none.
    """
    total = sum(weights.values())
    if desired <= 0 or not total:
        return dict.fromkeys(weights, 0)
    found = {name: desired * weight // total for name, weight in weights.items()}
    # the order of the spec decides between equal remainders
    by_remainder = sorted(weights, key=lambda name: -(desired * weights[name] % total))
    for name in by_remainder[: desired - sum(found.values())]:
        found[name] += 1
    weighing = [name for name, weight in weights.items() if weight > 0]
    if desired >= len(weighing):
        for name in weighing:
            if not found[name]:
                found[max(weighing, key=lambda each: found[each])] -= 1
                found[name] = 1
    return found


def _score(pool: str, name: str, key: str, weight: int) -> float:
    digest = hashlib.sha256("\0".join((pool, name, key)).encode("utf-8", "surrogatepass")).digest()
    drawn = ((int.from_bytes(digest[:8], "big") >> (64 - _BITS)) + 0.5) / 2**_BITS
    return -weight / math.log(drawn)
