"""Calls of functions in one line, in the language of the code."""

from collections.abc import Callable, Mapping
from typing import Final

from mcp_exec_tools.catalog import Schema
from mcp_exec_tools.languages import check_language
from mcp_exec_tools.wrappers.python import signature as python
from mcp_exec_tools.wrappers.typescript import signature as typescript

_LANGUAGES: Final[Mapping[str, Callable[[str, Schema, Schema | None], str]]] = {
    "python": python.format_signature,
    "typescript": typescript.format_signature,
}


def format_signature(
    function: str,
    input_schema: Schema,
    output_schema: Schema | None,
    *,
    language: str = "python",
) -> str:
    """Return the call of a function: `get_forecast(location: str, days: int = 7) -> list[dict]`.

    `getForecast(location: string, days: number = 7): Promise<object[]>` in TypeScript. Raises ValueError if there is no
    such language.
    """
    check_language(language)
    return _LANGUAGES[language](function, input_schema, output_schema)
