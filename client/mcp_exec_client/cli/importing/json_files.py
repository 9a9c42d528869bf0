"""JSON files as people have them: with comments and trailing commas, as editors allow in their settings."""

import json
import re
from pathlib import Path
from typing import Any, Final, NoReturn

from mcp_exec_client.cli.options import CommandError

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_TEXT_OR_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TEXT_OR_COMMA: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')


def read_json(path: Path) -> Any:
    """Return the data of a file. Raises CommandError."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise CommandError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except ValueError:
            if (plain := _strip(text)) == text:
                raise
            return json.loads(plain, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not valid JSON: {error}") from error


def _strip(text: str) -> str:
    """Return the text without comments and trailing commas; lines keep their numbers."""
    text = _TEXT_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), text)
    return _TEXT_OR_COMMA.sub(lambda found: found[0] if found[0][0] == '"' else "", text)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not allowed")
