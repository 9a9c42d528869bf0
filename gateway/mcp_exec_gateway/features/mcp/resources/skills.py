"""`skills/list` and `skills/get`: the extension `io.modelcontextprotocol/skills` (SEP-2640).

An entry has the front matter of SKILL.md and each file's digest, so that a client verifies what it reads. Entries are
those of the newest approved versions.
"""

from typing import Any, Final, Literal

from mcp import MCPError
from mcp_types import INVALID_PARAMS, CacheableResult, PaginatedRequestParams, RequestParams

from mcp_exec_common.kube.objects import Object
from mcp_exec_common.skills.folder import SKILL_FILE, SkillFolder
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_gateway.features.mcp.resources.addresses import Address, build_unknown_error
from mcp_exec_gateway.features.skills.service import SkillService

EXTENSION: Final = "io.modelcontextprotocol/skills"
_PAGE: Final = 100
_CACHED_MS: Final = 60_000


class GetSkillParams(RequestParams):
    """Parameters of `skills/get`."""

    uri: str


class ListSkillsResult(CacheableResult):
    """A page of entries."""

    skills: list[dict[str, Any]]
    next_cursor: str | None = None
    result_type: Literal["complete"] = "complete"


class GetSkillResult(CacheableResult):
    """One entry."""

    skill: dict[str, Any]
    result_type: Literal["complete"] = "complete"


def list_skills(sender: Sender, params: PaginatedRequestParams) -> ListSkillsResult:
    """Return a page of entries by name. The cursor is the last name of the page before. Raises MCPError."""
    after = params.cursor or ""
    if len(after) > 50:
        raise MCPError(INVALID_PARAMS, "the cursor is not one that skills/list has returned")
    skills = [each for each in list_newest_skills(sender) if each["spec"]["name"] > after]
    page = [_build_entry(skill) for skill in skills[:_PAGE]]
    following = skills[_PAGE - 1]["spec"]["name"] if len(skills) > _PAGE else None
    return ListSkillsResult(skills=page, next_cursor=following, ttl_ms=_CACHED_MS)


def get_skill(sender: Sender, params: GetSkillParams) -> GetSkillResult:
    """Return the entry of the SKILL.md at this address. Raises MCPError."""
    address = Address.parse(params.uri)
    for skill in list_newest_skills(sender):
        if (address.scheme, address.name, address.path) == ("skill", skill["spec"]["name"], SKILL_FILE):
            return GetSkillResult(skill=_build_entry(skill), ttl_ms=_CACHED_MS)
    raise build_unknown_error(address)


def list_newest_skills(sender: Sender) -> list[Object]:
    """Return the newest approved versions; none in a gateway without skills."""
    skills = sender.dependencies.find(SkillService)
    return [] if skills is None else skills.cache.list_newest(sender.namespace)


def _build_entry(skill: Object) -> dict[str, Any]:
    spec = skill["spec"]
    addresses = {path: str(Address(scheme="skill", name=spec["name"], path=path)) for path in skill["files"]}
    files = [
        {"uri": addresses[path], "digest": digest, "size": size} for path, (digest, size) in skill["files"].items()
    ]
    folder = SkillFolder.from_spec({**spec, "code": ""})
    return {
        "uri": addresses[SKILL_FILE],
        "frontmatter": folder.to_frontmatter(version=spec["version"]),
        "resources": files,
    }
