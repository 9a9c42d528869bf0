"""Languages of the code that calls tools."""

from collections.abc import Mapping
from typing import Final

LANGUAGES: Final = ("python", "typescript")
"""The languages, the default one first."""
TITLES: Final[Mapping[str, str]] = {"python": "Python", "typescript": "TypeScript"}
FENCES: Final[Mapping[str, frozenset[str]]] = {
    "python": frozenset({"python", "python3", "py", "py3", "ipython", "ipython3", "tool_code"}),
    "typescript": frozenset({"typescript", "ts", "mts", "javascript", "js", "mjs", "tool_code"}),
}
"""Words behind the opening fence of a block of Markdown with code in a language."""


def check_language(language: object) -> None:
    """Raise ValueError if there is no such language."""
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, not {str(language)[:100]!r}")
