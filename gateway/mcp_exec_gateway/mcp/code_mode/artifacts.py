"""Artifacts of a run as content of its result: images that fit, and links to everything."""

import base64
import logging
from typing import Any, Final

from mcp_types import ContentBlock, ImageContent, ResourceLink

from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.files.artifacts import list_artifacts
from mcp_exec_gateway.http.json import replace_surrogates
from mcp_exec_gateway.http.limits import Reservation
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.http.query_params import find_base_url
from mcp_exec_gateway.mcp.budget import estimate_tokens
from mcp_exec_gateway.mcp.request import Sender
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)

MAX_IMAGES: Final = 4
"""Images in one result: each costs a model some thousand tokens."""
MAX_IMAGE_BYTES: Final = 1024 * 1024
MAX_ALL_BYTES: Final = 2 * 1024 * 1024
"""Bytes of all images of one result."""
MAX_LINKS: Final = 20
_COPIES: Final = 4
"""Memory of an image in its bytes: read, encoded, in the result and in the response."""
_PREVIEW_CHARACTERS: Final = 200
_MAGIC: Final = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
"""First bytes of the formats that models see."""


def list_run_artifacts(sender: Sender, execution: Object) -> list[dict[str, Any]]:
    """Return an execution's artifacts with links, for structured content."""
    base_url = find_base_url(sender.http, public_url=sender.dependencies.settings.public_url)
    fields = ("id", "name", "mediaType", "bytes", "title", "preview", "url", "expiresAt")
    views = sender.dependencies.artifacts.list_views(execution, base_url=base_url)
    shown: list[dict[str, Any]] = replace_surrogates(
        [{name: view[name] for name in fields if view.get(name)} for view in views]
    )
    return shown


async def build_content(
    sender: Sender, execution: Object, listed: list[dict[str, Any]], *, memory: Reservation
) -> list[ContentBlock]:
    """Return the images that fit, then a link to each artifact, at most MAX_LINKS. The images count in `memory`.

    An image that can't be read is a link alone: the outcome of the run does not depend on it.
    """
    images = [
        ImageContent(data=base64.b64encode(content).decode(), mime_type=item["mediaType"])
        for item in _choose_images(execution, memory)
        if (content := await _read_image(sender, execution, item)) is not None
    ]
    return [*images, *_build_links(listed, tokens=sender.options.budget.links)]


def _choose_images(execution: Object, memory: Reservation) -> list[Object]:
    """Return the first images that fit, and reserve memory for them; none if memory is short."""
    chosen: list[Object] = []
    room = MAX_ALL_BYTES
    for item in list_artifacts(execution):
        if item.get("mediaType") in _MAGIC and item["bytes"] <= min(room, MAX_IMAGE_BYTES) and len(chosen) < MAX_IMAGES:
            chosen.append(item)
            room -= item["bytes"]
    return chosen if memory.resize(memory.size + _COPIES * (MAX_ALL_BYTES - room)) else []


async def _read_image(sender: Sender, execution: Object, item: Object) -> bytes | None:
    try:
        content = await sender.dependencies.artifacts.read(execution, item["id"], limit=item["bytes"])
    except HttpProblem as problem:
        log.info("artifact %s of %s is not shown: %s", item["id"], execution["metadata"]["name"], problem)
        return None
    return content if content is not None and find_image_type(content) == item["mediaType"] else None


def find_image_type(content: bytes) -> str | None:
    """Return the media type of an image that models see, by its first bytes, or None."""
    return next((media_type for media_type, magic in _MAGIC.items() if content.startswith(magic)), None)


def _build_links(listed: list[dict[str, Any]], *, tokens: int) -> list[ResourceLink]:
    """Return links to the first artifacts, as many as fit."""
    links = []
    for link in map(_build_link, listed[:MAX_LINKS]):
        tokens -= estimate_tokens(link.model_dump_json(by_alias=True, exclude_none=True))
        if tokens < 0:
            break
        links.append(link)
    return links


def _build_link(item: dict[str, Any]) -> ResourceLink:
    about = [item.get("title"), shorten(str(item.get("preview") or ""), _PREVIEW_CHARACTERS)]
    return ResourceLink(
        name=item["name"],
        uri=item["url"],
        mime_type=item.get("mediaType"),
        size=item.get("bytes"),
        description="\n".join(filter(None, about)) or None,
    )
