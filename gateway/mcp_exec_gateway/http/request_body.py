"""The body of a request that creates an execution: read within bounds, then judged strictly.

JSON that Python takes but that means something else to others is refused: duplicate keys, NaN, numbers that the API
server would round, text that is not Unicode.
"""

import asyncio
import json
import math
from typing import Any, Final, NoReturn, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.meta import FieldError, Model, field_errors
from mcp_exec_gateway.http.problems import Problem, invalid

NOT_GIVEN: Final = ("cancelRequested", "approvals")
"""Fields of a spec that come to it later: nobody approves what nobody has asked for."""
_BODY_SECONDS: Final = 30.0
_DISCARDED_BYTES: Final = 8 * 1024 * 1024
"""What is read of a body beyond its limit: most clients send all before they read that it was too large."""
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


class ClientGone(Exception):
    """The client went away before it had an answer."""


class _Unfit(ValueError):
    """JSON that is not accepted."""


async def read_body(request: Request, *, limit: int, seconds: float = _BODY_SECONDS) -> bytes:
    """The whole body, at most `limit` bytes of it within `seconds`; what a Content-Length says is not relied upon.

    Raises Problem, or ClientGone.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem("media-type", 415, f"the body is {kind or 'of no type'}, accepted is application/json")
    if "expect" in request.headers and int(request.headers.get("content-length", "0")) > limit:
        raise _too_large(limit)  # the client asked before it sends
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limit:
                    body += chunk
                elif size > limit + _DISCARDED_BYTES:
                    break
    except TimeoutError:
        detail = f"the body was not there after {seconds:g} seconds"
        raise Problem("request-timeout", 408, detail, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientGone from None
    if size > limit:
        raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> Problem:
    # a rest of the body may never be read, so the connection can't be used again
    detail = f"the body has more than {limit} bytes"
    errors = [FieldError(field="body", message=f"at most {limit} bytes are allowed")]
    return Problem("body-too-large", 413, detail, errors=errors, headers={"Connection": "close"})


def parse_spec(body: bytes) -> CodeExecutionSpec:
    """The spec that a body asks for. Raises Problem: 400 where it is no JSON, 422 where a field is wrong."""
    given = _parse_json(body)
    errors = []
    if isinstance(given, dict):
        errors = [FieldError(field=name, message="unknown field") for name in NOT_GIVEN if name in given]
    try:
        # by JSON, so that strictness is JSON's own; by alias alone, so that no second spelling is accepted
        spec = CodeExecutionSpec.model_validate_json(body, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid(*errors, *field_errors(error)) from None
    if not errors and (reason := _loses(spec.context)):
        errors = [FieldError(field="context", message=reason)]
    if errors:
        raise invalid(*errors)
    return spec


M = TypeVar("M", bound=Model)


def parse_model(model: type[M], body: bytes) -> M:
    """What a body says. Raises Problem: 400 where it is no JSON, 422 where a field is wrong."""
    _parse_json(body)
    try:
        return model.model_validate_json(body, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid(*field_errors(error)) from None


def _parse_json(body: bytes) -> object:
    try:
        return json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = str(error)
    errors = [FieldError(field="body", message=reason)]
    raise Problem("bad-json", 400, f"the body is no JSON that is accepted: {reason}", errors=errors)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Unfit(f"the key {twice[:100]!r} stands twice in one object")
    return found


def _no_constant(constant: str) -> NoReturn:
    raise _Unfit(f"{constant} is no JSON")


def _loses(context: dict[str, Any]) -> str | None:
    """Why the API server could not keep a context as it is, or None."""
    todo: list[Any] = [context]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
        elif isinstance(value, bool):
            continue
        elif isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
            return "an integer of more than 64 bits would be rounded; send it as a string"
        elif isinstance(value, float) and not math.isfinite(value):
            return "a number is too large for a double"
    return None
