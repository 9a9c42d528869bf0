"""Lists of any size in bounded memory: pages sized by bytes and time, parsed object by object.

An object may have 1.5 MB, and takes up to thirty times as much memory as its JSON: `{}` takes 64 bytes and a key 50.
So a page is never parsed as a whole. Each object is parsed alone and reduced before the next one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.parsing import parse_part

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""The largest answer of the API server that is read. An object has at most 1.5 MiB, since etcd takes no more."""
_PAGE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a page that is neither shortened nor lengthened."""
_PAGE_SECONDS: Final = 1.0
"""Seconds until a page should arrive: an API server reads 10 to 100 objects of maximal size in a second."""
_GROWTH: Final = 4
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_LISTS: Final = ("items", "rows")


@dataclass(kw_only=True)
class PageSize:
    """Number of objects to request with the next page. It follows the size and the time of the pages before."""

    maximum: int = 500
    objects: int = 25
    """Objects of the next page."""

    def __post_init__(self) -> None:
        self.objects = min(self.objects, self.maximum)

    def adapt(self, *, size: int, seconds: float) -> None:
        """Take in the bytes of a page and the seconds that it took."""
        share = min(_PAGE_BYTES / max(size, 1), _PAGE_SECONDS / max(seconds, 0.001), _GROWTH)
        self.objects = max(1, min(int(self.objects * share), self.maximum))

    def shrink(self) -> bool:
        """Request fewer objects after a page that was too large. Return False if it was a single object."""
        was, self.objects = self.objects, max(1, self.objects // 8)
        return was > 1


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """What a table of the API server shows of one object: its metadata and the cells of its printer columns."""

    metadata: Object
    cells: Object
    """Values by the name of their column; null if the object does not have the field."""


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """One page of a table."""

    rows: list[TableRow]
    token: str | None
    """Token of the next page; None after the last."""


class ObjectReader:
    """Iterator over the objects of a list or the rows of a table, each parsed when it is requested.

    Raises ValueError if the page is no JSON object.
    """

    def __init__(self, page: str) -> None:
        self.rest: Object = {}
        """The page without the objects, as far as it was read."""
        self.position = 0
        """Characters that were parsed."""
        self._page = page

    def __iter__(self) -> Iterator[Object]:
        """Yield each object once."""
        self._expect("{")
        while not self._at("}"):
            name = self._parse()
            self._expect(":")
            if name in _LISTS and self._at("["):
                self._expect("[")
                while not self._at("]"):
                    yield self._parse()
                    self._skip_comma("]")
                self._expect("]")
            else:
                self.rest[name] = self._parse()
            self._skip_comma("}")

    def _at(self, mark: str) -> bool:
        return self._page.startswith(mark, self.position)

    def _parse(self) -> Any:
        value, self.position = parse_part(self._page, self.position)
        self._skip_space()
        return value

    def _expect(self, mark: str) -> None:
        if not self._at(mark):
            raise ValueError(f"no {mark!r} at character {self.position} of a list")
        self.position += 1
        self._skip_space()

    def _skip_comma(self, end: str) -> None:
        if not self._at(end):
            self._expect(",")

    def _skip_space(self) -> None:
        found = _SPACE.match(self._page, self.position)
        assert found is not None  # noqa: S101 - the pattern matches an empty text
        self.position = found.end()


def name_cells(columns: list[Object], row: Object) -> TableRow:
    """Return a row with its cells by name."""
    names = (str(column.get("name")) for column in columns)
    return TableRow(metadata=row["object"]["metadata"], cells=dict(zip(names, row["cells"], strict=False)))
