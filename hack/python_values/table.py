"""The table of Python values: what each becomes as a result of code and as an argument of a tool.

The page docs/reference/values.md is generated from it, and the tests of the sandbox evaluate each row.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """One value."""

    python: str
    """Expression of the value. Names such as `Decimal` and `pd` are those of `IMPORTS`."""
    result: str
    """The result as JSON."""
    note: str = ""
    """Kind of the note that the run has; empty if the JSON means the same as the value."""
    argument: str = ""
    """The argument as JSON, if it is not that of the result."""
    refused: str = ""
    """What the error says if the value is refused as an argument."""
    shown: str = ""
    """The result in the page, if the whole one is too long."""


@dataclass(frozen=True, kw_only=True)
class ValueGroup:
    """Values of one sort, under a heading of the page."""

    title: str
    text: str
    rows: tuple[ValueRow, ...]


IMPORTS: Final = (
    "import array, collections, dataclasses, enum, io, itertools, math, sqlite3, typing, types, uuid",
    "from collections import ChainMap, Counter, OrderedDict, UserDict, UserString, defaultdict, deque",
    "from datetime import UTC, date, datetime, time, timedelta",
    "from decimal import Decimal",
    "from fractions import Fraction",
    "from ipaddress import ip_address",
    "from pathlib import Path",
    "from types import MappingProxyType, SimpleNamespace",
    "from uuid import UUID",
    "from zoneinfo import ZoneInfo",
)
LIBRARIES: Final = {
    "np": "numpy",
    "pd": "pandas",
    "pl": "polars",
    "pa": "pyarrow",
    "attrs": "attrs",
    "pydantic": "pydantic",
}
"""Libraries by the names that the rows have for them."""

_Row = ValueRow
_NUMBERS: Final = ValueGroup(
    title="Numbers",
    text="""JSON has one sort of number. A float without a fraction, such as `1.0`, arrives as `1`, because the API
server stores it so: the same number, which Python reads as an `int`. A note says so if no float of the result has a
fraction. NaN and infinities are null everywhere, with a note, so that a consumer can sum a column. Integers are exact
up to 64 bits in the status, over HTTP, in the text of MCP and in the Python client. JavaScript and other clients that
read numbers as doubles round them beyond 2^53, so a note names the place; return `str(value)` for such clients.
Decimals are texts as results. As an argument, a decimal is a number if a double has its value, since tools declare
amounts as numbers.""",
    rows=(
        _Row(python="7", result="7"),
        _Row(python="True", result="true"),
        _Row(python="None", result="null"),
        _Row(python="1.5", result="1.5"),
        _Row(python="1.0", result="1.0", note="ValueChanged", shown="1"),
        _Row(python="[1.0, 2.5]", result="[1.0, 2.5]", shown="[1, 2.5]"),
        _Row(python="-0.0", result="-0.0", note="ValueChanged", shown="0"),
        _Row(python="2**53", result="9007199254740992"),
        _Row(python="725653563933458433", result="725653563933458433", note="ValueChanged"),
        _Row(python="2**63 - 1", result="9223372036854775807", note="ValueChanged"),
        _Row(python="2**64 + 3", result='"18446744073709551619"', note="ValueChanged", argument="18446744073709551619"),
        _Row(
            python="-2**63 - 1", result='"-9223372036854775809"', note="ValueChanged", argument="-9223372036854775809"
        ),
        _Row(
            python="10**5000",
            result='"1' + 5000 * "0" + '"',
            note="ValueChanged",
            refused="pass str(value)",
            shown='"1000…" with all digits',
        ),
        _Row(python="math.nan", result="null", note="ValueChanged", refused="pass None"),
        _Row(python="math.inf", result="null", note="ValueChanged", refused="pass None"),
        _Row(python="-math.inf", result="null", note="ValueChanged", refused="pass None"),
        _Row(python='{"a": [math.nan, 1.5]}', result='{"a": [null, 1.5]}', note="ValueChanged", refused="pass None"),
        _Row(python='Decimal("10.50")', result='"10.50"', argument="10.5"),
        _Row(python='Decimal("12")', result='"12"', argument="12"),
        _Row(
            python='Decimal("12345678901234567.89")',
            result='"12345678901234567.89"',
            refused="pass str(value), or float(value)",
        ),
        _Row(python='Decimal("NaN")', result="null", note="ValueChanged", refused="pass None"),
        _Row(python='Decimal("sNaN")', result="null", note="ValueChanged", refused="pass None"),
        _Row(python='Decimal("-Infinity")', result="null", note="ValueChanged", refused="pass None"),
        _Row(python="Fraction(1, 3)", result='"1/3"'),
        _Row(python="3 + 4j", result='"(3+4j)"'),
    ),
)
_TEXTS: Final = ValueGroup(
    title="Texts and bytes",
    text="""A lone surrogate is no Unicode text. The result has its escape, as `print` writes it. Bytes have no form in
JSON: decode them, encode them as base64, or write them to a file in `artifacts`.""",
    rows=(
        _Row(python='"é"', result='"é"'),
        _Row(python='""', result='""'),
        _Row(python='UserString("a")', result='"a"'),
        _Row(python='"a\\ud800b"', result='"a\\\\ud800b"', note="ValueChanged", refused="lone surrogate"),
        _Row(python='b"ab"', result="\"b'ab'\"", note="ValueChanged", refused="pass data.decode()"),
        _Row(python='bytearray(b"ab")', result="\"b'ab'\"", note="ValueChanged", refused="pass data.decode()"),
        _Row(python='memoryview(b"ab")', result="\"b'ab'\"", note="ValueChanged", refused="pass data.decode()"),
    ),
)
_CONTAINERS: Final = ValueGroup(
    title="Collections and iterators",
    text="""Sets are sorted if their members can be. Of an iterator, the result has the first 1,000 items, or those of
the first two seconds, and a note says if there are more; they are used up then. Asynchronous
ones are read in the same way as a result. Files are not read. As an argument, an iterator may have 100,000 items.""",
    rows=(
        _Row(python='[1, "a", None]', result='[1, "a", null]'),
        _Row(python="(1, 2)", result="[1, 2]"),
        _Row(python="{3, 1, 2}", result="[1, 2, 3]"),
        _Row(python='frozenset({"b", "a"})', result='["a", "b"]'),
        _Row(python="range(3)", result="[0, 1, 2]"),
        _Row(python="deque([1, 2])", result="[1, 2]"),
        _Row(python='array.array("i", [1, 2])', result="[1, 2]"),
        _Row(python='{"b": 1, "a": 2}.keys()', result='["b", "a"]'),
        _Row(python='{"b": 1, "a": 2}.values()', result="[1, 2]"),
        _Row(python='{"b": 1}.items()', result='[["b", 1]]'),
        _Row(python="(x * x for x in range(3))", result="[0, 1, 4]"),
        _Row(python='map(str.upper, ["a"])', result='["A"]'),
        _Row(python='zip([1, 2], "ab")', result='[[1, "a"], [2, "b"]]'),
        _Row(
            python="itertools.count()",
            result=str(list(range(1000))),
            note="OutputCut",
            refused="pass a list",
            shown="[0, 1, … 999]",
        ),
        _Row(python="sqlite3.connect(':memory:').execute('select 1, 2 union select 3, 4')", result="[[1, 2], [3, 4]]"),
    ),
)
_OBJECTS: Final = ValueGroup(
    title="Mappings and objects",
    text="""JSON's keys are texts: a key that is no text is the text of its JSON. If two keys have the same text, the
second one gets a number, and a note names it. Everything without a form is its `repr`, with a note. A value that
contains itself, or more than 64 levels, is cut with a note.""",
    rows=(
        _Row(python='{"a": 1}', result='{"a": 1}'),
        _Row(
            python='{2: "a", None: "b", True: "c", 1.5: "d"}', result='{"2": "a", "null": "b", "true": "c", "1.5": "d"}'
        ),
        _Row(python="{date(2026, 1, 2): 1}", result='{"2026-01-02": 1}'),
        _Row(python="{(1, 2): 3}", result='{"[1, 2]": 3}', refused="pass texts as keys"),
        _Row(
            python='{1: "a", "1": "b"}',
            result='{"1": "a", "1 (2)": "b"}',
            note="KeysCollided",
            refused="pass keys with different texts",
        ),
        _Row(
            python='{None: 1, "null": 2}',
            result='{"null": 1, "null (2)": 2}',
            note="KeysCollided",
            refused="pass keys with different texts",
        ),
        _Row(python="OrderedDict(b=1, a=2)", result='{"b": 1, "a": 2}'),
        _Row(python="defaultdict(list, a=[1])", result='{"a": [1]}'),
        _Row(python='Counter("aab")', result='{"a": 2, "b": 1}'),
        _Row(python='ChainMap({"a": 1}, {"a": 2, "b": 3})', result='{"a": 1, "b": 3}'),
        _Row(python='MappingProxyType({"a": 1})', result='{"a": 1}'),
        _Row(python="UserDict(a=1)", result='{"a": 1}'),
        _Row(python="SimpleNamespace(a=1)", result='{"a": 1}'),
        _Row(python='collections.namedtuple("Point", "x y")(1, 2)', result='{"x": 1, "y": 2}'),
        _Row(python='dataclasses.make_dataclass("Row", ["name"])("r")', result='{"name": "r"}'),
        _Row(python='attrs.make_class("Row", ["name"])("r")', result='{"name": "r"}'),
        _Row(python='pydantic.create_model("Row", name=(str, ...))(name="r")', result='{"name": "r"}'),
        _Row(python='enum.Enum("Colour", {"RED": "red"}).RED', result='"red"'),
        _Row(python='enum.IntFlag("Mode", "R W").W', result="2"),
        _Row(
            python='ValueError("no")',
            result="\"ValueError('no')\"",
            note="ValueChanged",
            refused="no JSON form",
        ),
        _Row(
            python='ExceptionGroup("g", [ValueError(1)])',
            result="\"ExceptionGroup('g', [ValueError(1)])\"",
            note="ValueChanged",
            refused="no JSON form",
        ),
        _Row(python="int", result="\"<class 'int'>\"", note="ValueChanged", refused="no JSON form"),
    ),
)
_TIMES: Final = ValueGroup(
    title="Times and names",
    text="""Points in time are ISO 8601, with their offset from UTC if they have one. Durations are Python's text of
them.""",
    rows=(
        _Row(python="date(2026, 1, 2)", result='"2026-01-02"'),
        _Row(python="datetime(2026, 1, 2, 3, 4, 5)", result='"2026-01-02T03:04:05"'),
        _Row(python="datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)", result='"2026-01-02T03:04:05.000006+00:00"'),
        _Row(python="time(3, 4)", result='"03:04:00"'),
        _Row(python="timedelta(days=1, hours=1)", result='"1 day, 1:00:00"'),
        _Row(python='ZoneInfo("UTC")', result='"UTC"'),
        _Row(python='Path("/workspace/a")', result='"/workspace/a"'),
        _Row(python="UUID(int=1)", result='"00000000-0000-0000-0000-000000000001"'),
        _Row(python='ip_address("10.0.0.1")', result='"10.0.0.1"'),
    ),
)
_NUMPY: Final = ValueGroup(
    title="numpy",
    text="""Scalars and arrays are numbers and lists, structured arrays are records, masked elements are null.""",
    rows=(
        _Row(python="np.int64(7)", result="7"),
        _Row(python="np.bool_(True)", result="true"),
        _Row(python="np.float32(1.5)", result="1.5"),
        _Row(python='np.longdouble("0.5")', result='"0.5"'),
        _Row(python="np.array(5)", result="5"),
        _Row(python="np.array([[1, 2], [3, 4]])", result="[[1, 2], [3, 4]]"),
        _Row(python="np.array([True])", result="[true]"),
        _Row(python="np.array([1 + 2j])", result='["(1+2j)"]'),
        _Row(python='np.array([1, None, "a"], dtype=object)', result='[1, null, "a"]'),
        _Row(
            python="np.array([1.0, np.nan, np.inf])",
            result="[1.0, null, null]",
            note="ValueChanged",
            refused="pass None",
            shown="[1, null, null]",
        ),
        _Row(python="np.float32('nan')", result="null", note="ValueChanged", refused="pass None"),
        _Row(python="np.longdouble('-inf')", result="null", note="ValueChanged", refused="pass None"),
        _Row(
            python='np.array([2**63 + 1], dtype="u8")',
            result='["9223372036854775809"]',
            note="ValueChanged",
            argument="[9223372036854775809]",
        ),
        _Row(python='np.array(["2026-01-01"], dtype="datetime64[ns]")', result='["2026-01-01T00:00:00"]'),
        _Row(python='np.datetime64("2026-01-02")', result='"2026-01-02"'),
        _Row(python='np.datetime64("NaT")', result="null", note="ValueChanged"),
        _Row(python='np.timedelta64(90, "m")', result='"1:30:00"'),
        _Row(python='np.timedelta64(5, "ns")', result='"5 nanoseconds"'),
        _Row(python='np.array([(1, "x")], dtype=[("a", "i4"), ("b", "U3")])', result='[{"a": 1, "b": "x"}]'),
        _Row(python="np.ma.array([1, 2], mask=[False, True])", result="[1, null]", note="ValueChanged"),
    ),
)
_PANDAS: Final = ValueGroup(
    title="pandas",
    text="""A frame is a list of records. An index that only counts the rows from 0 is left out; any other index is the
first column, or the first columns if it has several levels. A series with such an index is an object by its labels, and
a list of records if labels repeat or have several levels, with a note. NaN, NaT and NA are missing values in pandas, so
they are null, with a note.""",
    rows=(
        _Row(python="pd.Series([1, 2])", result="[1, 2]"),
        _Row(python='pd.Series([1, 2], index=["a", "b"])', result='{"a": 1, "b": 2}'),
        _Row(python="pd.Series([1, 2, 3])[1:]", result='{"1": 2, "2": 3}'),
        _Row(
            python='pd.Series([1, 2], index=["a", "a"])',
            result='[{"index": "a", "value": 1}, {"index": "a", "value": 2}]',
            note="KeysCollided",
        ),
        _Row(
            python='pd.Series([1], index=pd.to_datetime(["2026-01-02"]))',
            result='{"2026-01-02T00:00:00": 1}',
        ),
        _Row(
            python='pd.Series([1], index=pd.MultiIndex.from_tuples([("a", 2)], names=["x", "y"]), name="n")',
            result='[{"x": "a", "y": 2, "n": 1}]',
            note="KeysCollided",
        ),
        _Row(python="pd.Series([1.5, np.nan])", result="[1.5, null]", note="ValueChanged"),
        _Row(python="pd.Series([1.5, np.inf])", result="[1.5, null]", note="ValueChanged", refused="pass None"),
        _Row(
            python='pd.DataFrame({"a": [1.5, np.nan]}).to_dict(orient="records")',
            result='[{"a": 1.5}, {"a": null}]',
            note="ValueChanged",
            refused="pass None",
        ),
        _Row(python='pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})', result='[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]'),
        _Row(python='pd.DataFrame({"n": [1]}, index=pd.Index(["k"], name="key"))', result='[{"key": "k", "n": 1}]'),
        _Row(
            python='pd.DataFrame({"n": [1]}, index=pd.Index(["k"], name="n"))',
            result='[{"n": "k", "n (2)": 1}]',
            note="KeysCollided",
            refused="pass keys with different texts",
        ),
        _Row(
            python='pd.DataFrame([[1, 2]], columns=["a", "a"])',
            result='[{"a": 1, "a (2)": 2}]',
            note="KeysCollided",
            refused="pass keys with different texts",
        ),
        _Row(
            python='pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")]))',
            result='[{"[\\"a\\", \\"b\\"]": 1}]',
            refused="pass texts as keys",
        ),
        _Row(
            python='pd.DataFrame({"t": pd.to_datetime(["2026-01-01", None])})',
            result='[{"t": "2026-01-01T00:00:00"}, {"t": null}]',
            note="ValueChanged",
        ),
        _Row(python='pd.Index(["a", "b"])', result='["a", "b"]'),
        _Row(python='pd.Categorical(["a"])', result='["a"]'),
        _Row(python='pd.Timestamp("2026-01-02", tz="UTC")', result='"2026-01-02T00:00:00+00:00"'),
        _Row(python="pd.Timedelta(hours=1)", result='"1:00:00"'),
        _Row(python="pd.Timedelta(1)", result='"0 days 00:00:00.000000001"'),
        _Row(python='pd.Period("2026-01", "M")', result='"2026-01"'),
        _Row(python="pd.Interval(0, 1)", result='"(0, 1]"'),
        _Row(python="pd.NaT", result="null", note="ValueChanged"),
        _Row(python="pd.NA", result="null", note="ValueChanged"),
    ),
)
_OTHERS: Final = ValueGroup(
    title="polars and pyarrow",
    text="""Their tables and columns have the same forms as those of pandas. A lazy frame is not collected.""",
    rows=(
        _Row(
            python='pl.DataFrame({"a": [1, None], "d": [date(2026, 1, 2)] * 2})',
            result='[{"a": 1, "d": "2026-01-02"}, {"a": null, "d": "2026-01-02"}]',
        ),
        _Row(python='pl.Series("a", [1, 2])', result="[1, 2]"),
        _Row(python="pl.Series([1.5, math.nan])", result="[1.5, null]", note="ValueChanged", refused="pass None"),
        _Row(python='pl.DataFrame({"t": [timedelta(hours=1)]})', result='[{"t": "1:00:00"}]'),
        _Row(python='pa.table({"a": [1, None]})', result='[{"a": 1}, {"a": null}]'),
        _Row(
            python='pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])',
            result='[{"a": 1, "a (2)": 2}]',
            note="KeysCollided",
            refused="pass keys with different texts",
        ),
        _Row(python="pa.array([1, None])", result="[1, null]"),
    ),
)

GROUPS: Final = (_NUMBERS, _TEXTS, _CONTAINERS, _OBJECTS, _TIMES, _NUMPY, _PANDAS, _OTHERS)
ROWS: Final = tuple(row for group in GROUPS for row in group.rows)
