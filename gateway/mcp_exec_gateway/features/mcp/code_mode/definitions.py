"""What clients see of the tools: names, descriptions and schemas. Models read them in every request, so they are short.

The list is the same at every time, so that clients' prompt caches stay valid. Only the description of `run_code` has
the languages of the caller's pools, and the libraries of the pool, which change with its image.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    Prompt,
    PromptMessage,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolExecution,
)
from pydantic import TypeAdapter

from mcp_exec_api.constants import DEFAULT_LANGUAGE, LANGUAGES, MAX_TIMEOUT_SECONDS, Language
from mcp_exec_api.meta import SessionName
from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS, ExecutionOption, OptionKind
from mcp_exec_gateway.features.mcp.budget import DEFAULT_TOKENS
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_gateway.features.tools.service import Tools
from mcp_exec_tools.prompt import VERSION, describe_run, system_prompt
from mcp_exec_tools.search.index import LEVELS, MAX_LIMIT, MAX_QUERY

MAX_FOUND: Final = 50
"""Most tools that a search returns."""
DEFAULT_FOUND: Final = 10
MAX_DESCRIBED: Final = 20
"""Most tools that one call describes."""

MAX_WRITTEN: Final = 512 * 1024
"""Characters of a file that one call writes."""

INSTRUCTIONS: Final = """\
Work by code: find tools with search_tools, read the schemas you need with describe_tools, then write one block of \
code for run_code that calls them, filters what they return and prints only what the answer needs. The prompt \
`code-mode` has the details."""

_TOOL: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "server": {"type": "string"},
        "description": {"type": "string"},
        "import": {"type": "string"},
        "input_schema": {"type": "object"},
        "output_schema": {"type": ["object", "null"]},
    },
    "required": ["name", "server"],
}
_TOOLS: Final = {"type": "object", "properties": {"tools": {"type": "array", "items": _TOOL}}, "required": ["tools"]}

_NAME: Final = TypeAdapter(SessionName).json_schema()
"""Schema of names of sessions and workspaces."""


RESULT_SIZE: Final = "anthropic/maxResultSizeChars"
"""Key of `_meta`: Claude Code reads there how long a result may be, and keeps a longer one out of the context."""
_MAX_RESULT_SIZE: Final = 500_000
"""Largest value that the client accepts."""
_CHARACTERS_PER_TOKEN: Final = 4


def list_definitions(sender: Sender) -> list[Tool]:
    """Return all tools, as the sender's pools run them.

    If a result may have more tokens than clients take by themselves, the definitions say so.
    """
    update: dict[str, Any] = {}
    if (max_tokens := sender.options.max_tokens) > DEFAULT_TOKENS:
        update = {"meta": {RESULT_SIZE: min(_MAX_RESULT_SIZE, max_tokens * _CHARACTERS_PER_TOKEN)}}
    languages, libraries = sender.list_languages(), sender.describe_pool()
    described = describe_run(languages) + (f" {libraries}." if libraries else "")
    own: dict[str, dict[str, Any]] = {
        RUN_CODE.name: {"description": described, **_offer(RUN_CODE, languages)},
        **{tool.name: _offer(tool, languages) for tool in (SAVE_SKILL, SEARCH_TOOLS, DESCRIBE_TOOLS)},
    }
    return [tool.model_copy(update=update | own.get(tool.name, {})) for tool in TOOLS]


def _offer(tool: Tool, languages: Sequence[Language]) -> dict[str, Any]:
    """Return the schema of a tool's arguments with the languages to choose from; there is no choice with one."""
    properties = dict(tool.input_schema["properties"])
    argument = properties.pop("language")
    if len(languages) > 1:
        properties["language"] = {**argument, "enum": list(languages), "default": languages[0]}
    return {"input_schema": {**tool.input_schema, "properties": properties}}


def _describe_input(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "tools": {"type": "array", "items": {"type": "string", "minLength": 3}},
    "session": _NAME,
    "workspace": _NAME,
}
"""Schemas of options that say more than their kind."""
_TYPES: Final[Mapping[OptionKind, Mapping[str, Any]]] = {
    "text": {"type": "string"},
    "choice": {"type": "string"},
    "number": {"type": "integer"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "pairs": {"type": "object"},
    "object": {"type": "object"},
}
_FIRST: Final = ("context", "tools")
"""Arguments that models need most."""


def describe_arguments(options: Mapping[str, ExecutionOption]) -> dict[str, Any]:
    """Return the schema of each argument of `run_code` that is an option of an execution."""
    ordered = sorted(options.values(), key=lambda option: option.name not in _FIRST)
    return {option.argument: _describe_option(option) for option in ordered if option.argument}


def _describe_option(option: ExecutionOption) -> dict[str, Any]:
    schema = dict(_SCHEMAS.get(option.name) or _TYPES[option.kind])
    if option.kind == "number":
        schema |= {"minimum": option.lowest, "maximum": option.highest}
    if option.choices:
        schema["enum"] = list(option.choices)
    if option.longest is not None:
        schema["maxLength"] = option.longest
    return {**schema, "description": option.argument_help}


_LANGUAGE: Final = {"type": "string", "enum": list(LANGUAGES), "description": "language of the code"}
_TASKS: Final = ToolExecution(task_support="optional")
RUN_CODE: Final = Tool(
    name="run_code",
    title="Run code",
    description=describe_run([DEFAULT_LANGUAGE]),
    input_schema=_describe_input(
        {
            "code": {"type": "string", "minLength": 1},
            **describe_arguments(EXECUTION_OPTIONS),
        },
        "code",
    ),
    output_schema={
        "type": "object",
        "properties": {
            "execution": {"type": "string"},
            "phase": {"type": "string"},
            "reason": {"type": "string"},
            "stdout": {"type": "string"},
            "stderr": {"type": "string"},
            "result": {},
            "truncated": {"type": "boolean"},
            "attached": {"type": "boolean"},
            "error": {
                "type": "object",
                "properties": {
                    "type": {"type": "string"},
                    "message": {"type": "string"},
                    "line": {"type": "integer"},
                    "traceback": {"type": "string"},
                },
            },
            "toolCalls": {"type": "object"},
            "artifacts": {"type": "array", "items": {"type": "object"}},
            "skills": {"type": "object"},
            "notes": {"type": "array", "items": {"type": "object"}},
            "milliseconds": {"type": "number"},
        },
        "required": ["execution", "phase"],
    },
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
    ),
    execution=_TASKS,
)
RUN_SKILL: Final = Tool(
    name="run_skill",
    title="Run a skill",
    description="Run an approved skill, which search_tools marks with kind=skill. You get what run_code returns.",
    input_schema=_describe_input(
        {
            "name": {"type": "string", "minLength": 1},
            "version": {"type": "integer", "minimum": 1, "description": "default: the newest approved one"},
            "arguments": {"type": "object"},
            "timeout": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_SECONDS, "description": "seconds"},
        },
        "name",
    ),
    output_schema=RUN_CODE.output_schema,
    annotations=RUN_CODE.annotations,
    execution=_TASKS,
)
SAVE_SKILL: Final = Tool(
    name="save_skill",
    title="Save a skill",
    description="Keep code for later as a draft of a skill: code with a function `run`, or an execution that "
    "succeeded.",
    input_schema=_describe_input(
        {
            "name": {"type": "string", "description": "such as weekly-report"},
            "description": {"type": "string", "description": "what it does and when to use it, in a line"},
            "code": {"type": "string"},
            "language": _LANGUAGE,
            "execution": {"type": "string", "description": "name of the execution, instead of code"},
        },
        "name",
        "description",
    ),
    annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False),
)
_READ_ONLY: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
SEARCH_TOOLS: Final = Tool(
    name="search_tools",
    title="Search tools",
    description="Find tools and skills that code may use, best match first.",
    input_schema=_describe_input(
        {
            "query": {"type": "string", "maxLength": MAX_QUERY, "description": "a few words; empty lists all"},
            "detail_level": {"type": "string", "enum": list(LEVELS), "default": "with_description"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": DEFAULT_FOUND},
            "language": _LANGUAGE,
        },
        "query",
    ),
    output_schema=_TOOLS,
    annotations=_READ_ONLY,
)
DESCRIBE_TOOLS: Final = Tool(
    name="describe_tools",
    title="Describe tools",
    description="Show the import line and the schemas of tools.",
    input_schema=_describe_input(
        {
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MAX_DESCRIBED,
                "description": "SERVER.TOOL each",
            },
            "language": _LANGUAGE,
        },
        "names",
    ),
    output_schema=_TOOLS,
    annotations=_READ_ONLY,
)
_WORKSPACE: Final = {**_NAME, "description": "name, as in run_code"}
READ_FILE: Final = Tool(
    name="read_file",
    title="Read a file",
    description="Show a text or an image of a workspace, or the files of a folder.",
    input_schema=_describe_input(
        {
            "workspace": _WORKSPACE,
            "path": {"type": "string", "maxLength": 1024, "default": "", "description": "file or folder; empty: all"},
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "first character of a text"},
        },
        "workspace",
    ),
    annotations=_READ_ONLY,
)
WRITE_FILE: Final = Tool(
    name="write_file",
    title="Write a file",
    description="Write a text as a file of a workspace, which is created if it does not exist.",
    input_schema=_describe_input(
        {
            "workspace": _WORKSPACE,
            "path": {"type": "string", "maxLength": 1024},
            "content": {"type": "string", "maxLength": MAX_WRITTEN},
        },
        "workspace",
        "path",
        "content",
    ),
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
)
TOOLS: Final = (DESCRIBE_TOOLS, READ_FILE, RUN_CODE, RUN_SKILL, SAVE_SKILL, SEARCH_TOOLS, WRITE_FILE)
"""All tools, by name."""


CODE_MODE: Final = Prompt(
    name="code-mode",
    title="Work by code",
    description=f"How to work with run_code, search_tools and describe_tools (version {VERSION})",
)


async def get_prompt(sender: Sender, params: GetPromptRequestParams) -> GetPromptResult:
    """Return the prompt. Raises MCPError for another name, and HttpProblem if the tools cannot be read."""
    if params.name != CODE_MODE.name or params.arguments:
        raise MCPError(INVALID_PARAMS, f"there is one prompt, {CODE_MODE.name}, without arguments")
    allow = sender.allowed_tools
    tools = await sender.dependencies.get(Tools).catalogs.use_index(
        sender.caller, lambda index: index.search("", limit=MAX_LIMIT, allow=allow)
    )
    servers = sorted({str(tool["server"]) for tool in tools})
    text = system_prompt(
        servers,
        run_tool="run_code",
        describe_tool="describe_tools",
        libraries=sender.describe_pool(),
        language=sender.list_languages()[0],
    )
    return GetPromptResult(
        description=CODE_MODE.description,
        messages=[PromptMessage(role="user", content=TextContent(text=text))],
    )
