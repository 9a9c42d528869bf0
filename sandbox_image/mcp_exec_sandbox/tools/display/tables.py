"""Tables of pandas and polars: HTML with a bounded number of rows for people, a few rows as text for the model."""

from typing import Any

MAX_ROWS = 500
MAX_COLUMNS = 50
PREVIEW_ROWS = 10
PREVIEW_COLUMNS = 12
_CLASSES = ("DataFrame", "Series")


def is_table(value: Any) -> bool:
    """Return whether a value is a table or a column of pandas or polars."""
    return _find_library(value) in ("pandas", "polars") and type(value).__name__ in _CLASSES


def render_table(table: Any) -> tuple[str, str]:
    """Return the HTML and the text of a table's first rows."""
    if type(table).__name__ == "Series":
        table = table.to_frame()
    rows, columns = table.shape
    size = f"{rows} rows x {columns} columns"
    if _find_library(table) == "pandas":
        part = table.iloc[:MAX_ROWS, :MAX_COLUMNS]
        html = part.to_html(border=0)
        text = table.iloc[:PREVIEW_ROWS, :PREVIEW_COLUMNS].to_string(max_colwidth=60)
    else:
        part = table[:MAX_ROWS, :MAX_COLUMNS]
        html = _build_html(part)
        text = _build_text(table[:PREVIEW_ROWS, :PREVIEW_COLUMNS])
    cut = (
        f"<p>{size}, of which {part.shape[0]} x {part.shape[1]} are shown</p>" if part.shape != (rows, columns) else ""
    )
    return html + cut, f"{size}\n{text}"


def _find_library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _build_html(table: Any) -> str:
    """Return a table of polars as HTML. Its own has fewer rows, by a setting of the code."""
    from html import escape

    def build_row(cells: Any, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "\n".join(build_row(row, "td") for row in table.iter_rows())
    return f"<table><thead>{build_row(table.columns, 'th')}</thead>\n<tbody>{body}</tbody></table>"


def _build_text(table: Any) -> str:
    rows = [[str(cell)[:60] for cell in row] for row in (table.columns, *table.iter_rows())]
    return "\n".join("\t".join(row) for row in rows)
