"""Function `show`: writes a value to the folder of artifacts and describes it to the supervisor."""

import contextlib
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import ARTIFACT_EVENT, ARTIFACT_TEXT_CHARACTERS, ARTIFACTS_FOLDER, PREVIEW_CHARACTERS
from mcp_exec_sandbox.tools.display.rendering import Rendering, is_figure, render, render_figure
from mcp_exec_tools.text import shorten, shorten_line
from mcp_exec_tools.workspace_files import check_path

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
