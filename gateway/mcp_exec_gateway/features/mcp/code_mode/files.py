"""`read_file` and `write_file`: files of workspaces, without running code."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent

from mcp_exec_api.files import Owner
from mcp_exec_api.wire.workspaces import CommitResult, WorkspaceFileList
from mcp_exec_common.broker.client import BrokerResponse
from mcp_exec_gateway.core.auth.callers import find_owner
from mcp_exec_gateway.core.http.json import replace_surrogates
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.files.forwarding import check_workspace_name
from mcp_exec_gateway.features.files.service import Files
from mcp_exec_gateway.features.files.upload import UploadBody
from mcp_exec_gateway.features.files.workspaces import split_path
from mcp_exec_gateway.features.mcp.budget import TokenBudget, cut_to_tokens, estimate_json
from mcp_exec_gateway.features.mcp.code_mode.definitions import MAX_WRITTEN
from mcp_exec_gateway.features.mcp.code_mode.discovery import InvalidArguments, check_names
from mcp_exec_gateway.features.mcp.code_mode.output import MAX_IMAGE_BYTES, find_image_type
from mcp_exec_gateway.features.mcp.request import Sender

_MAX_READ: Final = MAX_IMAGE_BYTES
"""Bytes of a file that are read: of a text the model sees the part that it asks for."""
_MAX_LISTED: Final = 200
_MAX_OFFSET: Final = 2**31
_ROOM_TOKENS: Final = 100
"""Room for what the text says besides the file."""


async def read_file(sender: Sender, arguments: Mapping[str, Any]) -> CallToolResult:
    """Return a text or an image, or the list of a folder. Raises InvalidArguments and HttpProblem."""
    check_names(arguments, "workspace", "path", "offset")
    workspace, path = _read_workspace(arguments), _read_text(arguments, "path", default="")
    offset = arguments.get("offset", 0)
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= _MAX_OFFSET:
        raise InvalidArguments("offset must be a number of characters, 0 or more")
    caller = await sender.authorize("get")
    owner = find_owner(caller, sender.options.user)
    files = sender.dependencies.get(Files)
    if not path.strip("/"):
        return await _list_files(sender, owner, workspace, "")
    try:
        with files.transfer_slots.hold(caller.name), _reserving(sender):
            parts = "workspaces", workspace, "files", *split_path(path)
            async with files.forwarder.open_content(*parts, owner=owner) as stream:
                content = await _read_content(stream, path)
    except HttpProblem as problem:
        if problem.status == 404:
            return await _list_files(sender, owner, workspace, path.rstrip("/") + "/")
        raise _explain(problem) from None
    return _show(path, content, offset, budget=sender.options.budget)


async def write_file(sender: Sender, arguments: Mapping[str, Any]) -> CallToolResult:
    """Write a text as a file of a workspace. Raises InvalidArguments and HttpProblem."""
    check_names(arguments, "workspace", "path", "content")
    workspace, path = _read_workspace(arguments), _read_text(arguments, "path")
    content = _read_text(arguments, "content", limit=MAX_WRITTEN).encode("utf-8", "replace")
    caller = await sender.authorize("create")
    owner = find_owner(caller, sender.options.user)
    try:
        parts = "workspaces", workspace, "files", *split_path(path, is_new=True)
        params = await sender.dependencies.get(Files).workspaces.admit(owner, workspace, caller=caller)
        body = UploadBody.of(content)
        result = await sender.dependencies.get(Files).forwarder.ask(
            CommitResult, "PUT", *parts, owner=owner, params=params, body=body
        )
    except HttpProblem as problem:
        raise _explain(problem) from None
    text = f"{path} has {len(content)} bytes in version {result.version} of workspace {workspace}"
    return CallToolResult(content=[TextContent(text=replace_surrogates(text))], structured_content=result.to_api())


@contextmanager
def _reserving(sender: Sender) -> Iterator[None]:
    """Reserve the memory of a file that is read. Raises HttpProblem, a 503, if memory is short."""
    with sender.dependencies.memory.reserving(sender.namespace) as memory:
        memory.require(2 * _MAX_READ)
        yield


async def _read_content(stream: BrokerResponse, path: str) -> bytes:
    if stream.size is not None and stream.size > _MAX_READ:
        raise InvalidArguments(
            f"{path} has {stream.size} bytes, at most {_MAX_READ} can be read so; read a part of it in run_code"
        )
    return await stream.read(limit=_MAX_READ)


def _show(path: str, content: bytes, offset: int, *, budget: TokenBudget) -> CallToolResult:
    structured: dict[str, Any] = {"path": path, "bytes": len(content)}
    if media_type := find_image_type(content):
        shown: list[ContentBlock] = [ImageContent(data=base64.b64encode(content).decode(), mime_type=media_type)]
        return CallToolResult(content=shown, structured_content=structured)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InvalidArguments(f"{path} is neither text nor a PNG or JPEG image; read it in run_code") from None
    part = cut_to_tokens(text[offset : offset + budget.characters], budget.text - _ROOM_TOKENS)
    structured |= {"characters": len(text), "text": part}
    end = offset + len(part)
    if not part and end >= len(text):
        said = f"offset {offset} is its end or beyond" if text else "it is empty"
        more = f"({path} has {len(text)} characters: {said})"
        return CallToolResult(content=[TextContent(text=more)], structured_content=structured)
    more = f"\n({len(text) - end} more characters: read on with offset {end})" if end < len(text) else ""
    return CallToolResult(content=[TextContent(text=part + more)], structured_content=structured)


async def _list_files(sender: Sender, owner: Owner, workspace: str, prefix: str) -> CallToolResult:
    try:
        params = {"prefix": prefix, "limit": str(_MAX_LISTED)}
        page = await sender.dependencies.get(Files).forwarder.ask(
            WorkspaceFileList, "GET", "workspaces", workspace, "files", owner=owner, params=params
        )
    except HttpProblem as problem:
        raise _explain(problem) from None
    if not page.items:
        raise InvalidArguments(f"workspace {workspace} has no file {prefix.rstrip('/')!r}; list it with path ''")
    files: list[dict[str, Any]] = replace_surrogates([{"path": item.path, "bytes": item.size} for item in page.items])
    shown, room = [], sender.options.budget.text - _ROOM_TOKENS
    for item in files:
        room -= estimate_json(item)
        if room < 0:
            break
        shown.append(item)
    lines = [f"{item['path']} ({item['bytes']} bytes)" for item in shown]
    lines += ["(more files: name a folder to list)"] if page.next or len(shown) < len(files) else []
    return CallToolResult(content=[TextContent(text="\n".join(lines))], structured_content={"files": shown})


def _read_workspace(arguments: Mapping[str, Any]) -> str:
    name = _read_text(arguments, "workspace")
    try:
        check_workspace_name(name)
    except HttpProblem as problem:
        raise _explain(problem) from None
    return name


def _read_text(arguments: Mapping[str, Any], name: str, *, default: str | None = None, limit: int = 1024) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise InvalidArguments(f"{name} must be a text")
    if len(value) > limit:
        raise InvalidArguments(f"{name} has {len(value)} characters; at most {limit} are allowed")
    return value


def _explain(problem: HttpProblem) -> Exception:
    """Return InvalidArguments for what the model can correct, or else the problem."""
    return InvalidArguments(problem.detail) if problem.status in (404, 409, 413, 422) else problem
