"""Languages of the code that calls tools."""

from typing import Final, Literal, get_args

Language = Literal["python", "typescript"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
"""The languages, the default one first."""


def check_language(language: object) -> None:
    """Raise ValueError if there is no such language."""
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, not {str(language)[:100]!r}")
