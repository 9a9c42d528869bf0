"""Kubernetes quantities such as `512Mi` and `250m`."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field

Quantity = Annotated[
    str,
    Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"),
]

_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate(["k", "M", "G", "T"], 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate(["K", "M", "G", "T"], 1)},
}


def parse_quantity(text: str) -> Decimal:
    """Parse a quantity to a number in its base unit (cores or bytes). Raises ValueError if it is not a quantity."""
    number = text.rstrip("kKMGTim")
    suffix = text[len(number) :]
    if suffix not in _SUFFIXES or not number.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} is not a quantity; examples are 512Mi and 250m")
    return Decimal(number) * _SUFFIXES[suffix]
