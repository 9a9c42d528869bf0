"""Routes of sessions: create, list, get, reset, delete. A caller sees its own alone."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.owner import Owner
from mcp_exec_api.wire.sessions import NewSession
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.dependencies import CreateCaller, GetCaller, Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import NamespaceQuery, OwnerQuery
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi import sessions as openapi
from mcp_exec_gateway.sessions import build_session_view, find_owner

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])

Name = Annotated[str, Path(description="Name of the session.")]
_MAX_BODY_BYTES: Final = 16 * 1024


@router.post("", **openapi.CREATE_SESSION)
async def create_session(
    request: Request, dependencies: Injected, caller: CreateCaller, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """Create a session."""
    new = parse_model(NewSession, await read_body(request, limit=_MAX_BODY_BYTES))
    session = await dependencies.sessions.create(new, caller=caller)
    return _respond(session, find_owner(caller, new.user), status=201)


@router.get("", **openapi.LIST_SESSIONS)
async def list_sessions(dependencies: Injected, caller: ListCaller, query: Annotated[OwnerQuery, Query()]) -> Response:
    """List the caller's sessions."""
    own = dependencies.sessions.list_own(caller, user=query.user)
    return json_response({"items": [build_session_view(session, owner) for owner, session in own]})


@router.get("/{name}", **openapi.GET_SESSION)
async def get_session(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Get a session."""
    owner = find_owner(caller, query.user)
    return _respond(await dependencies.sessions.find(name, owner=owner), owner)


@router.post("/{name}/reset", **openapi.RESET_SESSION)
async def reset_session(
    dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """Let a session start afresh."""
    owner = find_owner(caller, query.user)
    return _respond(await dependencies.sessions.reset(name, owner=owner), owner, status=202)


@router.delete("/{name}", **openapi.DELETE_SESSION)
async def delete_session(
    dependencies: Injected, caller: CreateCaller, name: Name, query: Annotated[OwnerQuery, Query()]
) -> Response:
    """End a session and delete it."""
    await dependencies.sessions.delete(name, owner=find_owner(caller, query.user))
    return Response(status_code=204)


def _respond(session: Object, owner: Owner, *, status: int = 200) -> Response:
    return json_response(build_session_view(session, owner), status=status)
