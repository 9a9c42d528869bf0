"""Parameters that routes of several resources have.

Unknown and repeated query parameters are rejected: they are usually typos.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import unquote_to_bytes

from fastapi import Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from mcp_exec_gateway.core.http.problems import invalid_field

_HOST: Final = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,255}")


_SCHEMES: Final = ("http", "https")


class NamespaceQuery(BaseModel):
    """Parameters of every route with a caller."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Namespace of the request; the default is the caller's own. An API key works in its own only.",
        ),
    ] = None


InNamespace = Annotated[NamespaceQuery, Query()]
"""Type of the parameter of a route that has no others."""


class OwnerQuery(NamespaceQuery):
    """Parameters of routes about what a caller owns."""

    user: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=253,
            description="User whose sessions and workspaces are meant: those of executions with this `user`. By "
            "default those without a user; lists of sessions have all.",
        ),
    ] = None


def _check_range(moment: datetime) -> datetime:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("time_range", "the time is before year 1 or after year 9999 in UTC") from None
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_check_range)]
"""A time with a zone, which can be written in UTC."""


def find_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that repeats an earlier one, or None. Takes linear time: clients choose the names."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def reject_repeated_parameters(request: Request) -> None:
    """Raise HttpProblem if a query parameter is present twice. FastAPI would take the last one."""
    repeated = find_repeated(name for name, _ in request.query_params.multi_items())
    if repeated is not None:
        raise invalid_field(repeated, "the query parameter is present twice; send it once")


def reject_undecodable_url(request: Request) -> None:
    """Raise HttpProblem for a URL that is not UTF-8: the server replaces such bytes, and names would become equal."""
    for field, text in (("path", request.scope.get("raw_path") or b""), ("query", request.scope["query_string"])):
        try:
            unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise invalid_field(field, "the URL is not UTF-8 with percent signs") from None


def find_base_url(request: Request, *, public_url: str) -> str:
    """Return the address that the client reached the gateway at, unless a setting names one.

    A client that sends another Host or scheme gets links that work nowhere; nobody else gets them.
    """
    if public_url:
        return public_url.rstrip("/")
    forwarded = request.headers.get("x-forwarded-proto", "").strip().lower()
    scheme = forwarded if forwarded in _SCHEMES else request.url.scheme
    host = request.headers.get("host", "")
    return f"{scheme}://{host}" if _HOST.fullmatch(host) else ""
