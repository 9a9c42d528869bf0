"""What a resource contains: `resources/read`."""

import base64
import json
import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from mcp import MCPError
from mcp_types import INVALID_PARAMS, BlobResourceContents, ReadResourceResult, TextResourceContents

from mcp_exec_common.broker.client import BrokerResponse
from mcp_exec_common.skills.folder import FILE_TYPES, SkillFolder, encode
from mcp_exec_gateway.core.auth.callers import find_owner
from mcp_exec_gateway.core.http.json import replace_surrogates
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.files.service import Files
from mcp_exec_gateway.features.files.workspaces import split_path
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_gateway.features.mcp.resources.addresses import Address, Scheme, build_unknown_error
from mcp_exec_gateway.features.mcp.resources.skills import list_newest_skills
from mcp_exec_gateway.features.skills.service import SkillService
from mcp_exec_gateway.features.tools.service import Tools

MAX_BYTES: Final = 2**20
"""Bytes of a resource."""
_BYTES: Final = "application/octet-stream"


async def read_resource(sender: Sender, uri: str) -> ReadResourceResult:
    """Return a resource. Raises MCPError for one that does not exist or is too large, and HttpProblem."""
    address = Address.parse(uri)
    try:
        media_type, content = await _READERS[address.scheme](sender, address)
    except HttpProblem as problem:
        if problem.status in (404, 422):
            raise build_unknown_error(address) from None
        raise
    try:
        text = content.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(content).decode()
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=media_type or _BYTES, blob=blob)])
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=media_type or "text/plain", text=text)])


async def _read_skill(sender: Sender, address: Address) -> tuple[str, bytes]:
    newest = {skill["spec"]["name"]: skill for skill in list_newest_skills(sender)}
    if address.name not in newest or address.path not in newest[address.name]["files"]:
        raise build_unknown_error(address)
    version = newest[address.name]["spec"]["version"]
    caller = await sender.authorize("get")
    skill = await sender.dependencies.get(SkillService).find(address.name, version, caller=caller)
    text = SkillFolder.from_spec(skill["spec"]).to_files(version=version)[address.path]
    return FILE_TYPES[address.path], encode(text)


async def _read_file(sender: Sender, address: Address) -> tuple[str, bytes]:
    caller = await sender.authorize("get")
    owner = find_owner(caller, sender.options.user)
    parts = "workspaces", address.name, "files", *split_path(address.path)
    files = sender.dependencies.get(Files)
    opened = files.forwarder.open_content(*parts, owner=owner)
    with files.transfer_slots.hold(caller.name):
        async with opened as stream:
            return mimetypes.guess_type(address.path)[0] or "", await _read_all(sender, stream, address)


async def _read_artifact(sender: Sender, address: Address) -> tuple[str, bytes]:
    caller = await sender.authorize("get")
    execution = await sender.dependencies.executions.find(address.name, caller=caller)
    files = sender.dependencies.get(Files)
    item = files.artifacts.find(execution, address.path)
    with files.transfer_slots.hold(caller.name):
        async with files.artifacts.open(execution, item["id"]) as stream:
            return str(item.get("mediaType") or ""), await _read_all(sender, stream, address)


async def _read_tool(sender: Sender, address: Address) -> tuple[str, bytes]:
    name, allow, language = f"{address.name}.{address.path}"[:200], sender.allowed_tools, sender.list_languages()[0]
    tool = await sender.dependencies.get(Tools).catalogs.use_index(
        sender.caller, lambda index: index.find(name, allow=allow, language=language), language=language
    )
    if tool is None:
        raise build_unknown_error(address)
    return "application/json", json.dumps(replace_surrogates(tool), ensure_ascii=False).encode()


async def _read_all(sender: Sender, stream: BrokerResponse, address: Address) -> bytes:
    if stream.size is not None and stream.size > MAX_BYTES:
        detail = f"{str(address)[:200]} has {stream.size} bytes; at most {MAX_BYTES} are read: use code"
        raise MCPError(INVALID_PARAMS, detail)
    with sender.dependencies.memory.reserving(sender.namespace) as memory:
        memory.require(2 * MAX_BYTES)
        return await stream.read(limit=MAX_BYTES)


_READERS: Final[Mapping[Scheme, Callable[[Sender, Address], Awaitable[tuple[str, bytes]]]]] = {
    "skill": _read_skill,
    "workspace": _read_file,
    "artifact": _read_artifact,
    "tool": _read_tool,
}
