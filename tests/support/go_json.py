"""JSON as the API server stores it and returns it: that of k8s.io/apimachinery/pkg/util/json on an object of a CRD.

Integers of 64 bits stay exact, all other numbers become doubles, and a double without a fraction is written as an
integer if it has fewer than 22 digits, which is then read as one. The values of its test are from Kubernetes 1.20.
"""

import json
from decimal import Decimal
from typing import Any

_INT64 = range(-(2**63), 2**63)
_DIGITS = Decimal(10) ** 21


def store(data: Any) -> Any:
    """Return JSON data as the API server returns it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return json.loads(text, parse_int=_read_number, parse_float=_read_number)


def _read_number(text: str) -> int | float:
    exact = Decimal(text)
    if "." not in text and "e" not in text.lower() and int(exact) in _INT64:
        return int(exact)
    written = Decimal(repr(float(text)))
    is_integer = abs(written) < _DIGITS and written == written.to_integral_value()
    return int(written) if is_integer and int(written) in _INT64 else float(text)
