"""Values with a format, as notebooks show them. `display` writes them to the artifacts of the run."""

import json
import os
from typing import Any

from mcp_exec_sandbox.tools.display.show import display as display

__all__ = [
    *("HTML", "JSON", "SVG", "Code", "DisplayObject", "Image", "Javascript", "Latex", "Markdown", "Math", "Pretty"),
    *("clear_output", "display", "set_matplotlib_formats"),
]


class DisplayObject:
    """A value with a media type: given as data, or read from a file."""

    media_type = "text/plain"

    def __init__(self, data: Any = None, url: str | None = None, filename: Any = None, **options: Any) -> None:
        if url is not None:
            raise ValueError("url: a sandbox has no network; pass data or filename")
        if filename is None and isinstance(data, (str, os.PathLike)) and self._names_file(data):
            filename = data
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = data

    def _names_file(self, data: Any) -> bool:
        return isinstance(data, os.PathLike)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        data = self.data
        return {self.media_type: data.decode("utf-8", "replace") if isinstance(data, bytes) else data}


class Pretty(DisplayObject):
    """Plain text."""


class Code(DisplayObject):
    """Source text."""


class HTML(DisplayObject):
    """HTML."""

    media_type = "text/html"


class Markdown(DisplayObject):
    """Markdown."""

    media_type = "text/markdown"


class Latex(Markdown):
    """LaTeX, which Markdown can have too."""


class Math(Markdown):
    """A formula."""

    def __init__(self, data: Any = None, **options: Any) -> None:
        super().__init__(f"$\\displaystyle {data}$", **options)


class SVG(DisplayObject):
    """An image of lines."""

    media_type = "image/svg+xml"


class Javascript(DisplayObject):
    """JavaScript, which is shown and does not run."""

    media_type = "text/javascript"


class JSON(DisplayObject):
    """Plain data."""

    media_type = "application/json"

    def __init__(self, data: Any = None, **options: Any) -> None:
        super().__init__(data, **options)
        if isinstance(self.data, (str, bytes)):
            self.data = json.loads(self.data)


class Image(DisplayObject):
    """An image as bytes, or the file that has it."""

    def _names_file(self, data: Any) -> bool:
        return isinstance(data, (str, os.PathLike))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"application/octet-stream": self.data}


def clear_output(wait: bool = False) -> None:
    """Do nothing: output that was printed stays."""


def set_matplotlib_formats(*formats: str, **options: Any) -> None:
    """Do nothing: figures are saved as PNG."""
