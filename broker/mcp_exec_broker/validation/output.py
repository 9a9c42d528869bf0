"""Validation of a result against the output schema of its tool: code relies on it, and the wrappers declare it.

The schema comes from the server and is untrusted. The check is short: of a long list it covers the first rows.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from cachetools import LRUCache
from jsonschema import ValidationError

from mcp_exec_broker.errors import ErrorKind, ErrorReason, ToolCallError
from mcp_exec_broker.validation.schema import BoundedValidator, format_path
from mcp_exec_tools.text import shorten_line

_MAX_STEPS: Final = 1000
"""About 3 ms."""
_MAX_TEXT: Final = 300


class OutputValidator:
    """Validator of results that keeps parsed schemas by catalog and tool."""

    def __init__(self, *, max_schemas: int = 4096) -> None:
        self._validators: LRUCache[tuple[str, str], BoundedValidator] = LRUCache(max_schemas)

    @property
    def parsed_schemas(self) -> int:
        """Number of parsed schemas in the cache."""
        return len(self._validators)

    def validate(self, tool: str, value: Any, schema: Mapping[str, Any], *, catalog_hash: str) -> None:
        """Raise ToolCallError (ToolProtocolError, UnexpectedResult) if a value breaks the tool's output schema.

        The message contains none of the result's values, but may contain names.
        """
        error = self._get_validator(tool, schema, catalog_hash).find_error(value)
        if error is not None:
            raise build_output_error(tool, _describe(error))

    def accepts(self, tool: str, value: Any, schema: Mapping[str, Any], *, catalog_hash: str) -> bool:
        """Return whether a value keeps to the tool's output schema."""
        return self._get_validator(tool, schema, catalog_hash).find_error(value) is None

    def _get_validator(self, tool: str, schema: Mapping[str, Any], catalog_hash: str) -> BoundedValidator:
        key = (catalog_hash, tool)
        validator = self._validators.get(key)
        if validator is None:
            validator = self._validators[key] = BoundedValidator(schema, name=tool, max_steps=_MAX_STEPS)
        return validator


def build_output_error(tool: str, cause: str) -> ToolCallError:
    """Return the error of a result that does not match the output schema."""
    return ToolCallError(
        ErrorKind.PROTOCOL,
        f"{tool} was called, but its result does not match its outputSchema: {cause}",
        reason=ErrorReason.UNEXPECTED_RESULT,
    )


def _describe(error: ValidationError) -> str:
    """Return the place and the schema's requirement, but never the value: it has not been scanned."""
    requirement = shorten_line(json.dumps(error.validator_value), _MAX_TEXT)
    return (
        f"{format_path(error) or 'the value'} breaks {error.validator or 'a part that allows nothing'}: {requirement}"
    )
