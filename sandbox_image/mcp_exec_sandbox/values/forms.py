"""Simpler forms of values that are no plain JSON: texts, numbers, lists, dicts, tables and pairs with the same meaning.

Values of libraries are recognized by module and shape, so that no library is imported.
"""

import dataclasses
import datetime
import enum
import math
import pathlib
import sys
from collections import UserString
from collections.abc import Iterable
from typing import Any

from mcp_exec_sandbox.values.changes import UNKNOWN, Pairs

_AS_TEXT = (datetime.timedelta, pathlib.PurePath, complex, UserString)
_DECIMAL = (("decimal", "Decimal"),)
_AS_TEXT_IF_IMPORTED = (
    *_DECIMAL,
    ("uuid", "UUID"),
    ("fractions", "Fraction"),
    ("ipaddress", "IPv4Address"),
    ("ipaddress", "IPv6Address"),
    ("ipaddress", "IPv4Network"),
    ("ipaddress", "IPv6Network"),
    ("zoneinfo", "ZoneInfo"),
)
"""Classes of modules that not every idle sandbox imports: without the module, there are no such values."""
_AS_ISO = (datetime.datetime, datetime.date, datetime.time)
_LIBRARIES = frozenset({"numpy", "pandas", "polars", "pyarrow"})


def find_form(value: Any, room: int) -> Any:
    """Return a simpler value with the same meaning, or `UNKNOWN`.

    Args:
        value: a value that is no plain JSON.
        room: bytes that its JSON may have. Of large arrays and tables only the part that can fit is read.
    """
    if isinstance(value, type):
        return UNKNOWN
    if isinstance(value, enum.Enum):
        return value.value
    if (library := find_library(value)) is not None:
        # Imported for such a value, not in every idle sandbox.
        from mcp_exec_sandbox.values.libraries import find_library_form

        if (form := find_library_form(library, value, room)) is not UNKNOWN:
            return form
    if isinstance(value, _AS_ISO):
        return value.isoformat()
    if is_decimal(value) and not value.is_finite():
        return read_special(value)
    if isinstance(value, _AS_TEXT) or is_of_imported(value, _AS_TEXT_IF_IMPORTED):
        return str(value)
    return _find_record(value)


def is_decimal(value: object) -> bool:
    """Return whether a value is a decimal number."""
    return is_of_imported(value, _DECIMAL)


def read_special(value: Any) -> float:
    """Return the float of a decimal that is NaN or infinite. `float` refuses the NaN that signals."""
    return math.nan if value.is_nan() else float(value)


def find_library(value: object) -> str | None:
    """Return the library of a value, also of an instance of a subclass."""
    for base in type(value).__mro__:
        if (name := str(base.__module__).partition(".")[0]) in _LIBRARIES:
            return name
    return None


def is_of_imported(value: object, classes: Iterable[tuple[str, str]]) -> bool:
    """Return whether a value is an instance of one of the classes, given as module and name."""
    loaded = ((sys.modules.get(module), name) for module, name in classes)
    return any(module is not None and isinstance(value, getattr(module, name, ())) for module, name in loaded)


def _find_record(value: Any) -> Any:
    """Return the fields of a value by their names, if it has fields."""
    kind = type(value)
    if dataclasses.is_dataclass(value):
        return {field.name: _read_attribute(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        names = getattr(kind, "_fields", None)
        return UNKNOWN if names is None else dict(zip(names, value, strict=False))
    if callable(dump := getattr(kind, "model_dump", None)):
        return dump(value)
    if isinstance(fields := getattr(kind, "__attrs_attrs__", None), tuple):
        return {field.name: _read_attribute(value, field.name) for field in fields}
    if kind.__name__ == "SimpleNamespace":
        return vars(value)
    if is_of_imported(value, (("sqlite3", "Row"),)):
        return Pairs(zip(value.keys(), value, strict=True))
    if callable(convert := getattr(kind, "tolist", None)) and not isinstance(value, memoryview):
        return convert(value)
    return UNKNOWN


def _read_attribute(owner: object, name: str) -> Any:
    """Return an attribute, or a text if reading it raises."""
    try:
        return getattr(owner, name)
    except Exception as error:
        return f"<{name}: {type(error).__name__}>"
