"""Output of objects: JSON, YAML, names, and the tables of executions, sessions, files and other objects."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from mcp_exec_api.constants import DEFAULT_LANGUAGE
from mcp_exec_client.cli.options import Object

FORMATS: Final = ("table", "wide", "json", "yaml", "name")
_MAX_LAST_CELL: Final = 2000
_MAX_CELL: Final = 120
_MAX_WIDE_CELL: Final = 300
_JOINERS: Final = "\u200c\u200d"
"""Invisible characters that scripts and emojis need and that change nothing else."""
_SUSPECT: Final = re.compile(r"[^ -~\n\t]")


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """Column of a table."""

    title: str
    cell: Callable[[Object], object]
    """Returns the value of an object; None and empty values are shown as nothing."""
    wide: bool = False
    """Whether only the format `wide` has it."""


def fields(*names: str, wide: bool = False) -> tuple[TableColumn, ...]:
    """Return columns of fields whose names, in capitals, are the titles."""

    def build(name: str) -> TableColumn:
        return TableColumn(title=name.upper(), cell=lambda item: item.get(name), wide=wide)

    return tuple(map(build, names))


def _read_name(item: Object) -> str:
    return str(item["name"])


def print_objects(
    items: Sequence[Object],
    *,
    form: str,
    columns: Sequence[TableColumn],
    name: Callable[[Object], str] = _read_name,
    empty: str = "",
) -> None:
    """Print objects in a format: a table, a list as JSON or YAML, or a name a line.

    If there are none, `empty` is written to standard error instead of a table or names.
    """
    if not items and form not in ("json", "yaml"):
        print_note(empty)
    elif form == "name":
        sys.stdout.write("".join(f"{escape_line(name(item))}\n" for item in items))
    elif form in ("json", "yaml"):
        print_data({"items": list(items)}, form=form)
    else:
        shown = [column for column in columns if form == "wide" or not column.wide]
        print_table(shown, items)


def print_object(
    item: Object, *, form: str, columns: Sequence[TableColumn], name: Callable[[Object], str] = _read_name
) -> None:
    """Print one object in a format. As JSON or YAML, it is no list."""
    if form in ("json", "yaml"):
        print_data(item, form=form)
    else:
        print_objects([item], form=form, columns=columns, name=name)


def print_data(data: Any, *, form: str) -> None:
    """Print a value as JSON or YAML. On a terminal, both have escapes for all that it could interpret."""
    text = _dump(data, form, ascii_only=False)
    if not is_safe(text):
        text = _dump(data, form, ascii_only=sys.stdout.isatty() or _is_not_unicode())
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_table(columns: Sequence[TableColumn], items: Sequence[Object]) -> None:
    """Print a table, as kubectl does. A table is for people, so its cells are always escaped."""
    titles, rows = [each.title for each in columns], [[each.cell(item) for each in columns] for item in items]
    limit = _MAX_WIDE_CELL if len(titles) > 8 else _MAX_CELL
    limits = [limit] * (len(titles) - 1) + [_MAX_LAST_CELL]  # nothing stands after a link
    texts = [list(titles), *([_cell(*each) for each in zip(row, limits, strict=True)] for row in rows)]
    widths = [max(len(row[index]) for row in texts) for index in range(len(titles))]
    for row in texts:
        line = "   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        sys.stdout.write(line + "\n")


def age(moment: object) -> str:
    """Return how long ago an RFC 3339 time was, as kubectl does: `5s`, `3m`, `2h`, `4d`."""
    try:
        seconds = int((datetime.now(UTC) - datetime.fromisoformat(str(moment))).total_seconds())
    except (TypeError, ValueError):
        return ""
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(seconds, 0)}s"


def _cell(value: object, limit: int) -> str:
    text = "" if value is None else escape_line(str(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _dump(data: Any, form: str, *, ascii_only: bool) -> str:
    if form == "json":
        return json.dumps(data, indent=2, ensure_ascii=ascii_only)
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks, if they have no characters that need an escape."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent)
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=not ascii_only, width=120))


def _is_not_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"


def escape(text: str) -> str:
    """Return the text with each unprintable character, except tabs and line feeds, as its escape in Python."""
    return _SUSPECT.sub(_escape_character, text)


def escape_line(text: str) -> str:
    """Return the text on one line, with each unprintable character as its escape in Python."""
    return escape(text).replace("\n", "\\n").replace("\t", " ")


def is_safe(text: str) -> bool:
    """Return whether a terminal would show the text as it is."""
    return escape(text) == text


def _escape_character(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable() or character in _JOINERS:
        return character
    return character.encode("ascii", "backslashreplace").decode() if ord(character) > 0x7F else repr(character)[1:-1]


class TextWriter:
    """Writes texts of a stream: as they are to files and pipes, escaped to a terminal.

    A carriage return is a line feed on a terminal, so that no text hides another.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.at_line_start = True
        self._after_return = False

    def write(self, text: str) -> None:
        """Write and flush a text. Raises BrokenPipeError if the reader is gone."""
        if not text:
            return
        shown = self._neutralize(text) if self.is_terminal else text
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()
        if shown:
            self.at_line_start = shown.endswith("\n")

    def end_line(self) -> None:
        """Start a new line, unless one has just started."""
        if not self.at_line_start:
            self.write("\n")

    def _neutralize(self, text: str) -> str:
        after_return, self._after_return = self._after_return, text.endswith("\r")
        if after_return:
            text = text.removeprefix("\n")
        return escape(text.replace("\r\n", "\n").replace("\r", "\n"))


def print_line(text: str) -> None:
    """Write one line to standard output, escaped."""
    sys.stdout.write(escape_line(text) + "\n")


def print_note(text: str) -> None:
    """Write one line to standard error, escaped."""
    sys.stderr.write(escape_line(text) + "\n")
    sys.stderr.flush()


EXECUTIONS: Final = (
    *fields("name", "phase", "reason", "pool", "start", "duration"),
    *fields("caller", "description", wide=True),
    TableColumn(title="POD", cell=lambda item: item.get("podName"), wide=True),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
SESSIONS: Final = (
    *fields("name", "phase", "reason", "pool"),
    TableColumn(title="EXECUTIONS", cell=lambda item: item.get("executions", 0)),
    TableColumn(title="QUEUED", cell=lambda item: item.get("queued") or None, wide=True),
    TableColumn(title="MEMORY", cell=lambda item: format_bytes(item.get("memoryBytes"))),
    *fields("user", "caller", "description", wide=True),
    TableColumn(title="POD", cell=lambda item: item.get("podName"), wide=True),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt"), wide=True),
    TableColumn(title="USED", cell=lambda item: age(item.get("lastUsedAt"))),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
KEYS: Final = (
    *fields("name", "namespace"),
    TableColumn(title="APPROVER", cell=lambda item: "yes" if item.get("approver") else None),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt")),
    TableColumn(title="FORMER UNTIL", cell=lambda item: item.get("formerExpiresAt"), wide=True),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
    *fields("description"),
)
KEY_USES: Final = (
    *fields("name"),
    TableColumn(title="LAST USED", cell=lambda item: item["lastUsedAt"][:16] + "Z"),
)
WORKSPACES: Final = (
    *fields("name", "version", "files"),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    TableColumn(title="LIMIT", cell=lambda item: format_bytes(item.get("maxBytes")), wide=True),
    *fields("description", wide=True),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt"), wide=True),
    TableColumn(title="USED", cell=lambda item: age(item.get("usedAt"))),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
FILES: Final = (
    *fields("path"),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("size"))),
    *fields("sha256", wide=True),
)
VERSIONS: Final = (
    *fields("version", "files"),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    TableColumn(title="CHANGED", cell=lambda item: item.get("changedFiles")),
    *fields("restored"),
    *fields("execution", wide=True),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
ARTIFACTS: Final = (
    *fields("id", "name"),
    TableColumn(title="TYPE", cell=lambda item: item.get("mediaType")),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    *fields("title"),
    TableColumn(title="LINK", cell=lambda item: item.get("url"), wide=True),
)
POOLS: Final = (
    *fields("name"),
    TableColumn(title="LANGUAGE", cell=lambda item: item.get("language", DEFAULT_LANGUAGE)),
    TableColumn(title="WARM", cell=lambda item: item.get("warm", 0)),
    TableColumn(title="BUSY", cell=lambda item: item.get("busy", 0)),
    TableColumn(title="QUEUED", cell=lambda item: item.get("queued", 0)),
    *fields("runtime", wide=True),
    *fields("python"),
    TableColumn(title="LIBRARIES", cell=lambda item: list_libraries(item.get("libraries"))),
)
SKILLS: Final = (
    TableColumn(title="NAME", cell=lambda item: f"{item['name']}-v{item['version']}"),
    *fields("state", "author", "uses", "successes"),
    TableColumn(title="DESCRIPTION", cell=lambda item: first_line(item.get("description"))),
    *fields("language", "import", wide=True),
)
SKILL_VERSIONS: Final = (
    *SKILLS[:3],
    TableColumn(title="SOURCE", cell=lambda item: (item.get("provenance") or {}).get("source")),
    TableColumn(title="EXECUTION", cell=lambda item: (item.get("provenance") or {}).get("execution")),
    TableColumn(title="REVIEWED BY", cell=lambda item: item.get("reviewedBy")),
    *SKILLS[3:],
)
APPROVALS: Final = (
    *fields("execution", "id", "state", "tool"),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt")),
    TableColumn(title="DECIDED BY", cell=lambda item: item.get("decidedBy"), wide=True),
    *fields("arguments"),
)
TOOLS: Final = (
    TableColumn(title="TOOL", cell=lambda item: tool_name(item)),
    TableColumn(title="DESCRIPTION", cell=lambda item: first_line(item.get("description"))),
    *fields("import", wide=True),
)


def tool_name(item: Object) -> str:
    """Return SERVER.TOOL."""
    return f"{item.get('server')}.{item.get('name')}"


def list_libraries(libraries: Any) -> str:
    """Return names and versions of libraries. The last cell of a row has room for them."""
    return ", ".join(f"{library['name']} {library['version']}" for library in libraries or ())


def first_line(text: Any) -> str:
    """Return the first line of a description."""
    return str(text or "").strip().partition("\n")[0]


def format_bytes(count: Any) -> str:
    """Return a number of bytes for people: `48Mi`."""
    if not isinstance(count, int):
        return ""
    for size, unit in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count / size:.0f}{unit}"
    return str(count)
