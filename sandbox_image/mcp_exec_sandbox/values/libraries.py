"""Forms of values of numpy, pandas, polars and pyarrow. Of large ones only the part that can fit is read."""

import datetime
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mcp_exec_sandbox.values.changes import UNKNOWN, LabelledRows, Missing

_REPEATED = "Its index has repeated labels"
_LEVELS = "Its index has several levels"
_PANDAS_TEXTS = {"Period", "Interval", "BaseOffset"}
_VAGUE_UNITS = ("generic", "Y", "M")
"""Units of time deltas without a fixed duration."""


def find_library_form(library: str, value: Any, room: int) -> Any:
    """Return the form of a value of a library, or `UNKNOWN`."""
    return _FORMS[library](value, max(room, 0))


def _find_numpy_form(value: Any, room: int) -> Any:
    if not hasattr(value, "tolist"):
        return UNKNOWN
    part = _take_part(value, room)
    names = part.dtype.names
    if names is not None:
        rows = [_list_fields(row, names) for row in part.reshape(-1)] if part.ndim else [_list_fields(part, names)]
        if part.ndim == 1:
            return LabelledRows(names, rows)
        return (
            dict(zip(names, rows[0], strict=True))
            if not part.ndim
            else [dict(zip(names, row, strict=True)) for row in rows]
        )
    if part.dtype.kind in "mM" and hasattr(part, "filled"):
        part = part.filled("NaT")
    if part.dtype.kind == "M":
        return _map_nested(_format_moment, _find_numpy().datetime_as_string(part).tolist())
    if part.dtype.kind == "m":
        return _format_spans(part)
    return _find_plain(part)


def _list_fields(row: Any, names: Sequence[str]) -> list[Any]:
    return [row[name] for name in names]


def _find_plain(part: Any) -> Any:
    """Return the elements as Python's values. Masked ones are missing, a long double is a text."""
    mask = getattr(part, "mask", None)
    plain = part.tolist()
    if mask is not None and mask is not False:
        is_masked = getattr(mask, "any", lambda: False)()
        return _map_nested(lambda item: Missing("masked") if item is None else item, plain) if is_masked else plain
    if type(plain) is not type(part):
        return plain
    # longdouble and clongdouble return themselves
    is_finite = bool(_find_numpy().isfinite(part))
    return str(plain) if is_finite or part.dtype.kind == "c" else float(plain)


def _take_part(value: Any, room: int) -> Any:
    """Return the first elements along the first axes, so that at most about `room` bytes are read."""
    left = room // 2
    index: list[slice] = []
    for axis, size in enumerate(getattr(value, "shape", ())):
        inner = max(1, math.prod(value.shape[axis + 1 :]))
        index.append(slice(min(size, left // inner + 1)))
        if left >= inner:
            break
    return value[tuple(index)] if index else value


def _map_nested(convert: Callable[[Any], Any], value: Any) -> Any:
    return [_map_nested(convert, item) for item in value] if isinstance(value, list) else convert(value)


def _format_moment(text: str | None) -> Any:
    """Return an ISO text as `datetime.isoformat` writes it, with nanoseconds only if there are any."""
    if text is None or text == "NaT":
        return Missing("NaT")
    whole, _, fraction = text.partition(".")
    kept = fraction.rstrip("0")
    return f"{whole}.{kept.ljust(6, '0') if len(kept) <= 6 else fraction}" if kept else whole


def _format_spans(part: Any) -> Any:
    """Return time deltas as texts; exact, also those of nanoseconds."""
    if part.ndim:
        return [_format_spans(item) for item in part]
    if str(part) == "NaT":
        return Missing("NaT")
    if _find_numpy().datetime_data(part.dtype)[0] in _VAGUE_UNITS:
        return str(part)
    fine = part.astype("timedelta64[us]")
    span = fine.tolist()
    return span if fine == part and isinstance(span, datetime.timedelta) else str(part)


def _find_numpy() -> Any:
    return sys.modules["numpy"]


def _find_pandas_form(value: Any, room: int) -> Any:
    names = {base.__name__ for base in type(value).__mro__}
    if names & {"NAType", "NaTType"}:
        return Missing("NaT" if "NaTType" in names else "NA")
    if "DataFrame" in names:
        return _find_frame_form(value.iloc[: _count_rows(room, max(1, value.shape[1]))])
    if "Series" in names:
        return _find_series_form(value.iloc[: _count_rows(room, 1)])
    if isinstance(value, datetime.timedelta):
        return UNKNOWN if value.nanoseconds else value.to_pytimedelta()  # type: ignore[attr-defined]
    if hasattr(value, "tolist"):
        return _list_column(value[: _count_rows(room, 1)])
    return str(value) if names & _PANDAS_TEXTS else UNKNOWN


def _find_frame_form(frame: Any) -> LabelledRows:
    labels, columns = _list_levels(frame.index)
    labels += list(frame.columns)
    columns += [_list_column(frame.iloc[:, place]) for place in range(frame.shape[1])]
    return LabelledRows(labels, zip(*columns, strict=True) if columns else [()] * len(frame))


def _find_series_form(series: Any) -> Any:
    labels, levels = _list_levels(series.index)
    values = _list_column(series)
    if not levels:
        return values
    if len(levels) == 1 and series.index.is_unique:
        return dict(zip(levels[0], values, strict=True))
    name = "value" if series.name is None else series.name
    why = _LEVELS if len(levels) > 1 else _REPEATED
    return LabelledRows([*labels, name], zip(*levels, values, strict=True), why=why)


def _list_levels(index: Any) -> tuple[list[Any], list[list[Any]]]:
    """Return the names and the labels of an index, by level. The index that counts rows from 0 has none."""
    is_range = type(index).__name__ == "RangeIndex"
    if is_range and index.start == 0 and index.step == 1 and index.name is None:
        return [], []
    several = index.nlevels > 1
    names = [
        (f"level_{level}" if several else "index") if name is None else name for level, name in enumerate(index.names)
    ]
    return names, [_list_column(index.get_level_values(level)) for level in range(index.nlevels)]


def _list_column(column: Any) -> list[Any]:
    """Return the values of a column or an index, with marks in place of NaN, NaT and NA."""
    values: list[Any] = list(column.tolist())
    if getattr(column, "nlevels", 1) > 1:
        return values
    missing = column.isna()
    if not missing.any():
        return values
    return [
        Missing(_name_missing(item)) if gone and item is not None else item
        for item, gone in zip(values, missing.tolist(), strict=True)
    ]


def _name_missing(item: Any) -> str:
    return {"NAType": "NA", "NaTType": "NaT"}.get(type(item).__name__, "NaN")


def _find_polars_form(value: Any, room: int) -> Any:
    names = {base.__name__ for base in type(value).__mro__}
    if "DataFrame" in names:
        part = value.head(_count_rows(room, max(1, value.width)))
        return LabelledRows(part.columns, part.iter_rows())
    return value.head(_count_rows(room, 1)).to_list() if "Series" in names else UNKNOWN


def _find_arrow_form(value: Any, room: int) -> Any:
    if hasattr(value, "as_py"):
        return value.as_py()
    if hasattr(value, "column_names") and hasattr(value, "slice"):
        part = value.slice(0, _count_rows(room, max(1, value.num_columns)))
        columns = [column.to_pylist() for column in part.columns]
        return LabelledRows(part.column_names, zip(*columns, strict=True) if columns else [()] * part.num_rows)
    return value.slice(0, _count_rows(room, 1)).to_pylist() if hasattr(value, "to_pylist") else UNKNOWN


def _count_rows(room: int, width: int) -> int:
    """Return the number of rows that can fit, and one more so that the result is known to be cut."""
    return room // (2 * width) + 1


_FORMS: dict[str, Callable[[Any, int], Any]] = {
    "numpy": _find_numpy_form,
    "pandas": _find_pandas_form,
    "polars": _find_polars_form,
    "pyarrow": _find_arrow_form,
}
