"""Rich values taken one step towards JSON: dates, enums, dataclasses, and values of pydantic, numpy and pandas.

Values of libraries are told by module and shape, so that no library is imported. Of large arrays and tables only what
can fit into the result is touched.
"""

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

UNKNOWN = object()
"""The answer for values that have no simpler form."""

_AS_TEXT = (datetime.timedelta, decimal.Decimal, uuid.UUID, pathlib.PurePath)
_AS_ISO = (datetime.datetime, datetime.date, datetime.time)


def simplify(value: Any, room: int) -> Any:
    """A simpler value (text, number, list, dict) that means the same, or `UNKNOWN`.

    Args:
        value: what isn't plain JSON.
        room: bytes that the result may still take.
    """
    if isinstance(value, type):
        return UNKNOWN
    if isinstance(value, enum.Enum):
        return value.value
    library = str(type(value).__module__).partition(".")[0]
    if (convert := _LIBRARIES.get(library)) is not None:
        return convert(value, room)
    if isinstance(value, _AS_ISO):
        return value.isoformat()
    if isinstance(value, _AS_TEXT):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {field.name: read(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=False))
    if callable(dump := getattr(type(value), "model_dump", None)):
        return dump(value)
    return UNKNOWN


def read(owner: object, name: str) -> Any:
    """An attribute, or a note in its place where reading it fails."""
    try:
        return getattr(owner, name)
    except Exception as error:
        return f"<{name}: {type(error).__name__}>"


def _numpy(value: Any, room: int) -> Any:
    if not hasattr(value, "tolist"):
        return UNKNOWN
    if getattr(value, "size", 1) * 2 > room:
        # Too large in any case: only what fits is turned into Python objects.
        value = value.reshape(-1)[: room // 2 + 1]
    plain = value.tolist()
    # longdouble and clongdouble give themselves back.
    return str(plain) if type(plain) is type(value) else plain


def _pandas(value: Any, room: int) -> Any:
    kind = type(value).__name__
    if kind in ("NAType", "NaTType"):
        return None
    if kind == "DataFrame":
        frame = value.iloc[: _rows(room, max(1, value.shape[1]))]
        if type(frame.index).__name__ != "RangeIndex":
            frame = frame.reset_index()
        return frame.to_dict(orient="records")
    if kind == "Series":
        series = value.iloc[: _rows(room, 1)]
        return series.tolist() if type(series.index).__name__ == "RangeIndex" else dict(series.items())
    if hasattr(value, "tolist"):
        return value[: _rows(room, 1)].tolist()
    return value.isoformat() if isinstance(value, _AS_ISO) else str(value)


def _rows(room: int, width: int) -> int:
    """Rows that can fit, and one more that shows that there were more."""
    return max(room, 0) // (2 * width) + 1


_LIBRARIES: dict[str, Callable[[Any, int], Any]] = {"numpy": _numpy, "pandas": _pandas}
