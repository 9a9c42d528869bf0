"""Routes of artifacts: of an execution, and by links that need no key until they expire."""

from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.wire.executions import ArtifactList
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.dependencies import Dependencies, GetCaller, Injected
from mcp_exec_gateway.core.http.access_log import get_trace
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.parameters import InNamespace, find_base_url
from mcp_exec_gateway.core.http.problems import not_found
from mcp_exec_gateway.core.openapi import UNCHANGED, build_router, describe_bytes, problems
from mcp_exec_gateway.features.files.artifacts import ArtifactAddress
from mcp_exec_gateway.features.files.parameters import ArtifactsQuery, LinkQuery
from mcp_exec_gateway.features.files.response import OCTETS, ContentResponse, build_content_headers
from mcp_exec_gateway.features.files.service import Files

_SHOWN: Final = (
    "The artifact. A browser shows images, text, JSON, HTML and SVG, the last two without scripts and without a "
    "network. Everything else is a download"
)

router = build_router(prefix="/v1", tag="artifacts")

Name = Annotated[str, Path(description="Name of the execution.")]
Id = Annotated[str, Path(description="Id of the artifact.")]


@router.get("/executions/{name}/artifacts", response_model=ArtifactList, response_description="The artifacts")
@problems(404)
async def list_artifacts(
    request: Request, dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[ArtifactsQuery, Query()]
) -> Response:
    """List an execution's artifacts.

    Returns the artifacts in their order, each with a link that needs no key until it expires.
    """
    execution = await dependencies.executions.find(name, caller=caller)
    base_url = find_base_url(request, public_url=dependencies.settings.public_url)
    views = dependencies.get(Files).artifacts.list_views(execution, base_url=base_url, seconds=query.link_seconds)
    return json_response({"items": views}, memory=dependencies.memory, namespace=caller.namespace)


@router.get(
    "/executions/{name}/artifacts/{id}",
    response_class=Response,
    response_description=_SHOWN,
    responses={200: describe_bytes(OCTETS), 304: UNCHANGED},
)
@problems(404)
async def get_artifact(
    request: Request, dependencies: Injected, caller: GetCaller, name: Name, id: Id, query: InNamespace
) -> Response:
    """Get an artifact.

    Returns the bytes of an artifact until the execution is deleted.
    """
    execution = await dependencies.executions.find(name, caller=caller)
    return _send_content(request, dependencies, execution, id, holder=caller.name)


@router.get(
    "/artifacts/{namespace}/{name}/{id}",
    response_class=Response,
    response_description=_SHOWN,
    responses={200: describe_bytes(OCTETS), 304: UNCHANGED},
    openapi_extra={"security": []},
)
@problems((403, "The link was changed"), 404, (410, "The link has expired"))
async def follow_link(
    request: Request,
    dependencies: Injected,
    namespace: Annotated[str, Path(description="Namespace of the execution.")],
    name: Name,
    id: Id,
    query: Annotated[LinkQuery, Query()],
) -> Response:
    """Get an artifact by a link.

    Returns the bytes of an artifact by a link from the list of artifacts, without a key.
    """
    peer = dependencies.callers.limit_anonymous(request)
    address = ArtifactAddress(namespace=namespace, execution=name, uid=query.uid, id=id)
    dependencies.get(Files).artifacts.links.verify(address, expires=query.expires, signature=query.signature)
    trace = get_trace(request.scope)
    trace.namespace, trace.execution = namespace, name
    execution = await dependencies.executions.read_any((namespace, name))
    if execution["metadata"]["uid"] != query.uid:
        raise not_found(namespace, name)
    return _send_content(request, dependencies, execution, id, holder=f"link {peer}")


def _send_content(request: Request, dependencies: Dependencies, execution: Object, id: str, *, holder: str) -> Response:
    item = dependencies.get(Files).artifacts.find(execution, id)
    get_trace(request.scope).execution = execution["metadata"]["name"]
    return ContentResponse(
        dependencies.get(Files).artifacts.open(execution, id),
        headers=build_content_headers(name=item["name"], media_type=item.get("mediaType", ""), shows=True),
        slot=dependencies.get(Files).transfer_slots.hold(holder),
        memory=dependencies.memory,
        namespace=execution["metadata"]["namespace"],
        if_none_match=request.headers.get("if-none-match", ""),
    )
