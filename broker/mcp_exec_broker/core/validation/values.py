"""Validates a call's arguments and its result against the schemas of its tool.

The schemas come from the server and are untrusted, see schema.py. Arguments are checked before the call
travels. Those whose check exceeds its bounds travel unchecked, and the server checks them; missing and unknown
parameters are found in any case. Code relies on the schema of a result, and the wrappers declare it. Its check is
short: of a long list it covers the first rows.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from threading import Lock
from typing import Any, Final, NamedTuple

from cachetools import LRUCache
from jsonschema import ValidationError

from mcp_exec_broker.core.errors import ErrorKind, ErrorReason, ToolCallError, build_rejection
from mcp_exec_broker.core.validation.schema import BoundedValidator, format_path
from mcp_exec_tools.catalog import Tool
from mcp_exec_tools.names import find_close_names, fold
from mcp_exec_tools.schemas.parameters import Parameters, read_parameters
from mcp_exec_tools.text import shorten_line

_MAX_TEXT: Final = 300
_MAX_PARAMETERS: Final = 200
_MAX_STEPS: Final = 50_000
_MAX_NONES: Final = 1000
_MAX_NAME: Final = 128
"""Longest name of a parameter that is found in other spellings."""
_MAX_NAMES: Final = 8
_MAX_SUGGESTED: Final = 3
"""Unknown names with suggestions."""
_MAX_RESULT_STEPS: Final = 1000
"""About 3 ms."""


def list_parameters(tool: Tool) -> list[str]:
    """Return the tool's parameters, required ones first and marked by a star."""
    return mark_names(read_parameters(tool.input_schema))


def mark_names(parameters: Parameters) -> list[str]:
    """Return the parameters, required ones first and marked by a star."""
    needed = parameters.required
    first = [f"{name[:_MAX_TEXT]}*" for name in needed]
    rest = [name[:_MAX_TEXT] for name in parameters.schemas if name not in needed]
    return (first + rest)[:_MAX_PARAMETERS]


@dataclass(frozen=True, kw_only=True)
class _ParsedSchema:
    parameters: Parameters
    defaults: Mapping[str, Any]
    """Values of required parameters that the broker fills in."""
    validator: BoundedValidator

    @cached_property
    def code_names(self) -> Mapping[str, str]:
        """The parameters by their names in code: `from` by `from_`."""
        return {code_name: name for name, code_name in self.parameters.code_names.items()}

    @cached_property
    def spellings(self) -> Mapping[str, str | None]:
        """The parameters by the common form of all their spellings; None if several have it."""
        spellings: dict[str, str | None] = {}
        for name in self.parameters.schemas:
            if len(name) <= _MAX_NAME:
                folded = fold(name)
                spellings[folded] = None if folded in spellings or not folded else name
        return spellings


class ValidArguments(NamedTuple):
    """Arguments that a tool accepts."""

    arguments: dict[str, Any]
    left_out: list[str]
    """Names whose None is not sent, because their schemas reject it."""


class ArgumentValidator:
    """Validator of arguments that keeps parsed schemas by catalog and tool."""

    def __init__(self, *, max_schemas: int = 4096) -> None:
        self._schemas: LRUCache[tuple[str, str], _ParsedSchema] = LRUCache(max_schemas)
        self._lock = Lock()

    @property
    def parsed_schemas(self) -> int:
        """Number of parsed schemas in the cache."""
        return len(self._schemas)

    def validate(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        *,
        catalog_hash: str,
        detokenize: Callable[[Any], Any] | None = None,
    ) -> ValidArguments:
        """Return the arguments to send: without each optional None that the schema rejects, and with defaults.

        `detokenize` replaces tokens by their values, if the broker does so before the call travels: arguments are valid
        if they are valid afterwards, but error messages quote the tokens only.

        Takes about 50 us for usual schemas and 0.25 s at most. Raises ToolCallError (ToolError, InvalidArguments) with
        the parameters and suggestions.
        """
        schema = self._parse_schema(tool, catalog_hash)
        parameters = schema.parameters
        arguments = _respell(schema, arguments)
        unset = _find_unset(schema, arguments)
        arguments = {name: value for name, value in arguments.items() if name not in unset}
        arguments |= {name: value for name, value in schema.defaults.items() if name not in arguments}
        unknown = [name for name in arguments if name not in parameters.schemas] if not parameters.is_open else []
        missing = [name for name in parameters.listed if name not in arguments]
        if unknown or missing:
            raise _build_name_error(tool, parameters, unknown, missing)
        error = schema.validator.find_error(arguments)
        if error is not None and detokenize is not None and (original := detokenize(arguments)) != arguments:
            error = error if schema.validator.find_error(original) is not None else None
        if error is not None:
            raise _build_value_error(tool, parameters, error)
        return ValidArguments(arguments, sorted(unset))

    def _parse_schema(self, tool: Tool, catalog_hash: str) -> _ParsedSchema:
        key = (catalog_hash, tool.name)
        with self._lock:  # large arguments are validated in threads
            schema = self._schemas.get(key)
            if schema is None:
                parameters = read_parameters(tool.input_schema)
                validator = BoundedValidator(tool.input_schema, name=tool.name, max_steps=_MAX_STEPS)
                defaults = {
                    name: value
                    for name, value in parameters.defaults.items()
                    if not validator.find_rejecting(value, {name: parameters.schemas[name]})
                }
                schema = self._schemas[key] = _ParsedSchema(
                    parameters=parameters, defaults=defaults, validator=validator
                )
            return schema


def _respell(schema: _ParsedSchema, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments with the tool's own names of those that are spelled otherwise: `projectID`, `from_`.

    Of two spellings of one parameter the second stays, so it is refused as unknown. A tool that accepts other
    parameters gets them as they are, names in code excepted.
    """
    names = schema.parameters.schemas
    if arguments.keys() <= names.keys():
        return arguments
    spelled: dict[str, Any] = {}
    for name, value in arguments.items():
        own = schema.code_names.get(name) if name not in names else None
        if own is None and name not in names and len(name) <= _MAX_NAME and not schema.parameters.is_open:
            own = schema.spellings.get(fold(name))
        spelled[name if own is None or own in arguments or own in spelled else own] = value
    return spelled


def _find_unset(schema: _ParsedSchema, arguments: Mapping[str, Any]) -> set[str]:
    """Return the optional parameters that are None although their schemas reject None."""
    properties, required = schema.parameters.schemas, schema.parameters.required
    nones = [name for name, value in arguments.items() if value is None and name in properties and name not in required]
    if not nones:
        return set()
    return schema.validator.find_rejecting(None, {name: properties[name] for name in nones[:_MAX_NONES]})


def describe_left_out(names: Sequence[str]) -> str:
    """Return the note on parameters whose None was not sent."""
    shown = ", ".join(shorten_line(name, _MAX_NAME) for name in names[:_MAX_NAMES])
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"None was not sent for {shown}{more}: the tool's schema does not accept null there."


def encode_arguments(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the arguments as JSON text. Raises ToolCallError (InvalidArguments) if not every reader accepts it.

    The SDK would fail while it sends them, and end the session with all calls that share it.
    """
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
        return text
    except UnicodeEncodeError:
        why = "a text contains half of a surrogate pair, which is no character"
    except ValueError:
        why = "a number is not finite, which JSON cannot express"
    except RecursionError:
        why = "they are nested too deeply"
    raise build_rejection(ErrorReason.INVALID_ARGUMENTS, f"{tool}: the arguments are not valid JSON: {why}")


def _build_name_error(tool: Tool, parameters: Parameters, unknown: list[str], missing: list[str]) -> ToolCallError:
    parts = []
    if missing:
        parts.append("missing: " + ", ".join(missing[:_MAX_NAMES]))
    suggestions: list[str] = []
    for number, name in enumerate(unknown[:_MAX_NAMES]):
        near = find_close_names(name, parameters.schemas, limit=2) if number < _MAX_SUGGESTED else []
        suggestions += near
        parts.append(f"unknown: {name[:_MAX_TEXT]}" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
    return build_rejection(
        ErrorReason.INVALID_ARGUMENTS,
        f"{tool.name}: " + "; ".join(parts),
        parameters=mark_names(parameters),
        suggestions=list(dict.fromkeys(suggestions)),
    )


def _build_value_error(tool: Tool, parameters: Parameters, error: ValidationError) -> ToolCallError:
    message = f"{tool.name}: {format_path(error) or 'the arguments'}: {_cut_middle(error.message)}"
    suggestions: list[str] = []
    if error.validator == "enum" and isinstance(error.instance, str) and isinstance(error.validator_value, list):
        allowed = [value for value in error.validator_value if isinstance(value, str)]
        suggestions = find_close_names(error.instance, allowed)
    elif error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = error.schema.get("properties") if isinstance(error.schema, Mapping) else None
        if isinstance(known, Mapping):
            for name in islice((name for name in error.instance if name not in known), _MAX_SUGGESTED):
                suggestions += find_close_names(name, known, limit=2)
    return build_rejection(
        ErrorReason.INVALID_ARGUMENTS, message, parameters=mark_names(parameters), suggestions=suggestions
    )


def _cut_middle(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT // 2] + " … " + text[-_MAX_TEXT // 2 :]


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
            validator = self._validators[key] = BoundedValidator(schema, name=tool, max_steps=_MAX_RESULT_STEPS)
        return validator


def build_output_error(tool: str, cause: str) -> ToolCallError:
    """Return the error of a result that does not match the output schema."""
    return ToolCallError(
        ErrorKind.PROTOCOL,
        f"{tool} was called, but its result does not match its outputSchema: {cause}",
        reason=ErrorReason.UNEXPECTED_RESULT,
    )


def build_unreadable_error(tool: str, cause: str) -> ToolCallError:
    """Return the error of a result whose meaning is unclear."""
    return ToolCallError(
        ErrorKind.PROTOCOL,
        f"{tool} was called, but its result can't be read: {cause}",
        reason=ErrorReason.UNEXPECTED_RESULT,
    )


def _describe(error: ValidationError) -> str:
    """Return the place and the schema's requirement, but never the value: it has not been scanned."""
    requirement = shorten_line(json.dumps(error.validator_value), _MAX_TEXT)
    return (
        f"{format_path(error) or 'the value'} breaks {error.validator or 'a part that allows nothing'}: {requirement}"
    )
