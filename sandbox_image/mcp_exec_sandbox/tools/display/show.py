"""Function `show`: values as files in the folder of artifacts.

Each has bytes, a media type, and a short text for a model that can't see the bytes.
"""

import contextlib
import io
import json
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import (
    ARTIFACT_EVENT,
    ARTIFACT_TEXT_CHARACTERS,
    ARTIFACTS_FOLDER,
    EXTENSIONS,
    PREVIEW_CHARACTERS,
)
from mcp_exec_tools.text import shorten, shorten_line
from mcp_exec_tools.workspace_files import check_path

MAX_ROWS = 500
MAX_COLUMNS = 50
PREVIEW_ROWS = 10
PREVIEW_COLUMNS = 12
_CLASSES = ("DataFrame", "Series")
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
)
_PREFERRED = (
    *("image/png", "image/jpeg", "image/svg+xml", "application/octet-stream", "text/html", "text/markdown"),
    *("application/json", "text/javascript", "text/plain"),
)
"""Media types, best first, of values that have several forms."""
_DOCUMENT = '<!doctype html><meta charset="utf-8">\n'
_MAX_PATH = 255


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
    cut = f"<p>{size}; {part.shape[0]} x {part.shape[1]} are shown</p>" if part.shape != (rows, columns) else ""
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


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """A value as a file."""

    kind: str
    """First part of its name if the code gives none: `figure`, `table`."""
    data: bytes
    media_type: str
    preview: str = ""
    source: Path | None = None
    """File that has the bytes, in place of `data`."""

    @property
    def extension(self) -> str:
        """Extension of its name if the code gives none."""
        if self.source is not None:
            return self.source.suffix.removeprefix(".")
        return EXTENSIONS.get(self.media_type, "bin")


def render(value: Any, media_type: str | None = None) -> Rendering:
    """Return a value as a file. Raises what the value's own methods raise."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return Rendering(kind="file", data=data, media_type=media_type or _detect_type(data))
    if (source := _find_file(value)) is not None:
        return Rendering(kind=source.stem, data=b"", media_type=media_type or "", source=source)
    if isinstance(value, str):
        return Rendering(
            kind="text", data=value.encode("utf-8", "replace"), media_type=media_type or "text/plain", preview=value
        )
    for recognize, convert in _CONVERSIONS:
        if recognize(value):
            return convert(value)
    return _render_other(value)


def is_figure(value: Any) -> bool:
    """Return whether a value can draw itself like a figure of matplotlib."""
    return not isinstance(value, type) and callable(getattr(value, "savefig", None))


def render_figure(figure: Any) -> Rendering:
    """Return a figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return Rendering(kind="figure", data=buffer.getvalue(), media_type="image/png", preview=_describe_figure(figure))


def _detect_type(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "application/octet-stream")


def _find_file(value: Any) -> Path | None:
    """Return the file that a path, or a text that is the name of an existing one, stands for.

    Raises:
        FileNotFoundError: a path leads to no file.
    """
    if isinstance(value, os.PathLike):
        path = Path(os.fsdecode(os.fspath(value)))
        if not path.is_file():
            raise FileNotFoundError(f"show(path): there is no file {path}")
        return path
    if isinstance(value, str) and 0 < len(value) <= _MAX_PATH and value.isprintable() and os.path.isfile(value):
        return Path(value)
    return None


def _describe_figure(figure: Any) -> str:
    """Return the titles and labels of a figure's axes."""
    texts = []
    for axes in list(getattr(figure, "axes", None) or ())[:10]:
        named = [f"{name} {text!r}" for name, text in _read_labels(axes) if text]
        texts.append(", ".join(named) or "axes without labels")
    return f"figure: {'; '.join(texts)}" if texts else "figure"


def _read_labels(axes: Any) -> list[tuple[str, str]]:
    readers = (("title", "get_title"), ("x", "get_xlabel"), ("y", "get_ylabel"))
    return [(name, str(getattr(axes, reader)())[:100]) for name, reader in readers if hasattr(axes, reader)]


def _is_axes(value: Any) -> bool:
    return not isinstance(value, type) and is_figure(getattr(value, "figure", None))


def _is_image(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL" and callable(getattr(value, "save", None))


def _render_image(image: Any) -> Rendering:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    preview = f"image of {image.width} x {image.height} pixels"
    return Rendering(kind="image", data=buffer.getvalue(), media_type="image/png", preview=preview)


def _render_table(table: Any) -> Rendering:
    html, preview = render_table(table)
    return Rendering(
        kind="table", data=(_DOCUMENT + html).encode("utf-8", "replace"), media_type="text/html", preview=preview
    )


def _has(name: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and callable(getattr(value, name, None))


def _render_png(value: Any) -> Rendering:
    data = value._repr_png_()
    if isinstance(data, str):  # base64, which the protocol allows too
        import base64

        data = base64.b64decode(data)
    return Rendering(kind="image", data=data, media_type="image/png", preview=_describe(value))


def _render_svg(value: Any) -> Rendering:
    data = str(value._repr_svg_()).encode("utf-8", "replace")
    return Rendering(kind="image", data=data, media_type="image/svg+xml", preview=_describe(value))


def _render_html(value: Any) -> Rendering:
    data = (_DOCUMENT + str(value._repr_html_())).encode("utf-8", "replace")
    return Rendering(kind="view", data=data, media_type="text/html", preview=_describe(value))


def _render_bundle(value: Any) -> Rendering:
    """Return the best form of a value that has several, by media type."""
    bundle = value._repr_mimebundle_()
    forms = bundle[0] if isinstance(bundle, tuple) else bundle
    media_type = next((name for name in _PREFERRED if name in forms), None)
    if media_type is None:
        return _render_other(value)
    form = forms[media_type]
    if media_type.startswith("image/") and isinstance(form, str) and media_type != "image/svg+xml":
        import base64

        form = base64.b64decode(form)
    if isinstance(form, bytes):
        return Rendering(kind="image", data=form, media_type=_detect_type(form), preview="")
    is_text = isinstance(form, str)
    text = form if is_text else json.dumps(form, ensure_ascii=False, indent=2, default=str)
    page = _DOCUMENT + text if media_type == "text/html" else text
    return Rendering(kind="view", data=page.encode("utf-8", "replace"), media_type=media_type, preview=text)


def _render_other(value: Any) -> Rendering:
    """Return JSON of plain data, and the text of anything else."""
    if isinstance(value, (dict, list, tuple)):
        text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
        return Rendering(kind="data", data=text.encode("utf-8", "replace"), media_type="application/json", preview=text)
    text = str(value)
    return Rendering(kind="text", data=text.encode("utf-8", "replace"), media_type="text/plain", preview=text)


def _describe(value: Any) -> str:
    return shorten(str(value), PREVIEW_CHARACTERS)


_CONVERSIONS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Rendering]], ...] = (
    (is_figure, render_figure),
    (_is_axes, lambda axes: render_figure(axes.figure)),
    (is_table, _render_table),
    (_is_image, _render_image),
    (_has("_repr_png_"), _render_png),
    (_has("_repr_svg_"), _render_svg),
    (_has("_repr_html_"), _render_html),
    (_has("_repr_mimebundle_"), _render_bundle),
)


Emit = Callable[[dict[str, Any]], None]
"""Function that sends an event to the supervisor."""


class ArtifactWriter:
    """Writer of the artifacts of one run."""

    def __init__(self, *, workspace: Path, emit: Emit) -> None:
        self._folder = workspace / ARTIFACTS_FOLDER
        self._emit = emit
        self._figures: weakref.WeakSet[Any] = weakref.WeakSet()
        """Figures that were shown."""

    def show(self, value: Any, name: str | None, title: str | None, media_type: str | None) -> None:
        """Write a value to a file, and send its description."""
        rendering = render(value, media_type)
        self._write(rendering, name, title)
        figure = value if is_figure(value) else getattr(value, "figure", None)
        if is_figure(figure):
            with contextlib.suppress(TypeError):
                self._figures.add(figure)

    def show_open_figures(self) -> None:
        """Show the open figures of pyplot that were not shown, and close all of them, as notebooks do."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        if pyplot is None or helpers is None:
            return
        for manager in helpers.Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if figure not in self._figures and figure.axes:
                self._write(render_figure(figure), None, None)
            pyplot.close(figure)

    def _write(self, rendering: Rendering, name: str | None, title: str | None) -> None:
        self._folder.mkdir(exist_ok=True)
        target = self._choose_path(rendering, name)
        if rendering.source is None:
            target.write_bytes(rendering.data)
        elif not target.exists() or not os.path.samefile(rendering.source, target):
            # Imported for a file, not in every idle sandbox: it loads three compression libraries.
            import shutil

            shutil.copyfile(rendering.source, target)
        event = {
            "type": ARTIFACT_EVENT,
            "path": target.name,
            "title": shorten_line(str(title or ""), ARTIFACT_TEXT_CHARACTERS),
            "preview": shorten(rendering.preview, PREVIEW_CHARACTERS),
        }
        self._emit(event | ({"mediaType": rendering.media_type} if rendering.media_type else {}))

    def _choose_path(self, rendering: Rendering, name: str | None) -> Path:
        if name is not None:
            return self._folder / _check_name(name, rendering.extension)
        if rendering.source is not None:
            return self._folder / rendering.source.name
        number = 1
        while (path := self._folder / f"{rendering.kind}-{number}.{rendering.extension}").exists():
            number += 1
        return path


def _check_name(name: object, extension: str) -> str:
    """Return a file name, with an extension if it has none."""
    if not isinstance(name, str) or not name or len(name) > ARTIFACT_TEXT_CHARACTERS or "/" in name:
        given = repr(name)[:100]
        raise ValueError(f"show(value, name): name is a file name such as 'sales.png', without a folder, not {given}")
    check_path(name)
    return name if "." in name.strip(".") or not extension else f"{name}.{extension}"


_current: list[ArtifactWriter] = []


def set_writer(writer: ArtifactWriter) -> None:
    """Make `writer` the one of this process."""
    _current[:] = [writer]


def show_open_figures() -> None:
    """Show what pyplot has open. `plt.show()` calls it."""
    if _current:
        _current[0].show_open_figures()


def show(value: Any, name: str | None = None, title: str | None = None, media_type: str | None = None) -> None:
    """Show a value to the people who read the result; they get a file, the model a short text.

    Args:
        value: a figure, an image, a table (pandas, polars), an object with `_repr_html_`, text, bytes, plain data, or
            the path of a file.
        name: name of the file, for example `sales.png`. A second file of this name replaces the first one.
        title: one line that says what it is.
        media_type: media type of text or bytes, for example `text/csv`.
    """
    if _current:
        _current[0].show(value, name, title, media_type)


def display(*values: Any, **options: Any) -> None:
    """Show values as `show` does, one after the other: the name that notebooks have for it. Options have no effect."""
    for value in values:
        show(value)
