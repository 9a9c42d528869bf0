"""`completion/complete`: names of servers, tools, skills, workspaces and files for the variables of the templates."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from mcp import MCPError
from mcp_types import INVALID_PARAMS, CompleteRequestParams, CompleteResult, Completion, PromptReference

from mcp_exec_gateway.core.http.json import replace_surrogates
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.files.artifacts import list_artifacts
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_gateway.features.mcp.resources.addresses import MAX_ADDRESS, TEMPLATES
from mcp_exec_gateway.features.mcp.resources.listing import list_files, list_workspaces
from mcp_exec_gateway.features.mcp.resources.skills import list_newest_skills
from mcp_exec_gateway.features.tools.service import Tools
from mcp_exec_tools.search.index import MAX_LIMIT

MAX_VALUES: Final = 100
"""Values of one answer, the protocol's limit."""
Given = Mapping[str, str]
"""Variables that are known already."""


async def complete(sender: Sender, params: CompleteRequestParams) -> CompleteResult:
    """Return the values that begin as the argument does. Raises MCPError for a variable that does not exist."""
    name, value = params.argument.name, params.argument.value[:MAX_ADDRESS]
    if isinstance(params.ref, PromptReference):
        raise MCPError(INVALID_PARAMS, f"the prompt {params.ref.name[:100]!r} has no argument {name[:100]!r}")
    finder = _FINDERS.get((params.ref.uri[:MAX_ADDRESS], name))
    if finder is None:
        allowed = ", ".join(f"{variable} of {uri}" for uri, variable in _FINDERS)
        raise MCPError(INVALID_PARAMS, f"{name[:100]!r} cannot be completed; what can be is {allowed}")
    given = {key: text[:MAX_ADDRESS] for key, text in ((params.context and params.context.arguments) or {}).items()}
    lowered = value.lower()
    found = sorted({each for each in await finder(sender, value, given) if each.lower().startswith(lowered)})
    values = [str(replace_surrogates(each)) for each in found[:MAX_VALUES]]
    return CompleteResult(completion=Completion(values=values, total=len(found), has_more=len(found) > len(values)))


async def _find_skills(sender: Sender, value: str, given: Given) -> Iterable[str]:
    return [skill["spec"]["name"] for skill in list_newest_skills(sender)]


async def _find_skill_files(sender: Sender, value: str, given: Given) -> Iterable[str]:
    name = given.get("name")
    skills = [skill for skill in list_newest_skills(sender) if name in (None, skill["spec"]["name"])]
    return {path for skill in skills for path in skill["files"]}


async def _find_workspaces(sender: Sender, value: str, given: Given) -> Iterable[str]:
    return await list_workspaces(sender)


async def _find_paths(sender: Sender, value: str, given: Given) -> Iterable[str]:
    if not (workspace := given.get("workspace")):
        return ()
    page = await list_files(sender, workspace, prefix=value, limit=MAX_VALUES + 1)
    return () if page is None else [file.path for file in page.items]


async def _find_artifacts(sender: Sender, value: str, given: Given) -> Iterable[str]:
    caller = await sender.authorize("get")
    try:
        execution = await sender.dependencies.executions.find(given.get("execution", ""), caller=caller)
    except HttpProblem as problem:
        if problem.status in (404, 422):
            return ()
        raise
    return [item["id"] for item in list_artifacts(execution)]


async def _find_servers(sender: Sender, value: str, given: Given) -> Iterable[str]:
    return {server for server, _ in await _list_tools(sender)}


async def _find_tools(sender: Sender, value: str, given: Given) -> Iterable[str]:
    server = given.get("server")
    return [tool for of, tool in await _list_tools(sender) if server in (None, "", of)]


async def _list_tools(sender: Sender) -> list[tuple[str, str]]:
    tools, allow = sender.dependencies.find(Tools), sender.allowed_tools
    if tools is None:
        return []
    found = await tools.catalogs.use_index(
        sender.caller, lambda index: index.search("", detail_level="name_only", limit=MAX_LIMIT, allow=allow)
    )
    return [(str(tool["server"]), str(tool["name"])) for tool in found if tool.get("kind") != "skill"]


_SKILL, _WORKSPACE, _ARTIFACT, _TOOL = (template.uri_template for template in TEMPLATES)
_FINDERS: Final[Mapping[tuple[str, str], Callable[[Sender, str, Given], Awaitable[Iterable[str]]]]] = {
    (_SKILL, "name"): _find_skills,
    (_SKILL, "file"): _find_skill_files,
    (_WORKSPACE, "workspace"): _find_workspaces,
    (_WORKSPACE, "path"): _find_paths,
    (_ARTIFACT, "id"): _find_artifacts,
    (_TOOL, "server"): _find_servers,
    (_TOOL, "tool"): _find_tools,
}
