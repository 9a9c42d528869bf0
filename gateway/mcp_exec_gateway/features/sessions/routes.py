"""Routes of sessions: create, list, get, reset, delete. Callers see only their own."""

from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.files import Owner
from mcp_exec_api.wire.sessions import NewSession, Session, SessionList
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.auth.callers import find_owner
from mcp_exec_gateway.core.dependencies import CreateCaller, GetCaller, Injected, ListCaller
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.parameters import InNamespace, OwnerQuery
from mcp_exec_gateway.core.http.request_body import parse_model, read_body
from mcp_exec_gateway.core.openapi import accepts, build_router, problems
from mcp_exec_gateway.features.sessions.service import SessionService, build_session_view

router = build_router(prefix="/v1/sessions", tag="sessions")

Name = Annotated[str, Path(description="Name of the session.")]
_MAX_BODY_BYTES: Final = 16 * 1024


@router.post("", status_code=201, response_model=Session, response_description="The session")
@accepts(NewSession, set_later=("resets",))
@problems((409, "The caller has a session of this name"))
async def create_session(
    request: Request, dependencies: Injected, caller: CreateCaller, query: InNamespace
) -> Response:
    """Create a session.

    Creates a session with limits of its own. An execution that names a session which does not exist creates it with the
    defaults.
    """
    new = parse_model(NewSession, await read_body(request, limit=_MAX_BODY_BYTES))
    session = await dependencies.get(SessionService).create(new, caller=caller)
    return _respond(session, find_owner(caller, new.user), status=201)


@router.get("", response_model=SessionList, response_description="The sessions")
async def list_sessions(dependencies: Injected, caller: ListCaller, query: Annotated[OwnerQuery, Query()]) -> Response:
    """List sessions.

    Returns the caller's own sessions, of all users or of one, from a cache some milliseconds old.
    """
    own = dependencies.get(SessionService).list_own(caller, user=query.user)
    return json_response({"items": [build_session_view(session, owner) for owner, session in own]})


@router.get("/{name}", response_model=Session, response_description="The session")
@problems(404)
async def get_session(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Get a session.

    Returns one of the caller's own sessions as it is now.
    """
    owner = find_owner(caller, query.user)
    return _respond(await dependencies.get(SessionService).find(name, owner=owner), owner)


@router.post(
    "/{name}/reset", status_code=202, response_model=Session, response_description="The session will start afresh"
)
@problems(404)
async def reset_session(
    dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Reset a session.

    Lets the session start afresh: its variables, imports and files are dropped, and an execution that runs in it is
    cancelled. Its limits stay.
    """
    owner = find_owner(caller, query.user)
    return _respond(await dependencies.get(SessionService).reset(name, owner=owner), owner, status=202)


@router.delete("/{name}", status_code=204, response_description="The session is deleted")
@problems(404)
async def delete_session(
    dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Delete a session.

    Ends the session with its pod. A later execution of the same name starts a new one.
    """
    await dependencies.get(SessionService).delete(name, owner=find_owner(caller, query.user))
    return Response(status_code=204)


def _respond(session: Object, owner: Owner, *, status: int = 200) -> Response:
    return json_response(build_session_view(session, owner), status=status)
