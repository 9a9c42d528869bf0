"""The checked body of `POST /v1/execution`, with the skills of the job."""

import re
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from mcp_exec_sandbox.protocol import SAVED_CODE_BYTES, SAVED_SKILLS
from mcp_exec_sandbox.supervisor.execution.events import EventLog
from mcp_exec_sandbox.supervisor.files.request import RequestedFiles, check_token, parse_address
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, check_fields, parse_body
from mcp_exec_sandbox.supervisor.settings import MIB

MAX_SOURCES = 64
MAX_CODE_BYTES = 1024 * 1024
"""Maximum size of all code together."""
MAX_ENTRIES = 500
_MODULE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OBJECT = re.compile(r"[a-z][a-z0-9-]{0,62}")
_SKILL_FIELDS = ("sources", "modules", "catalog")
_NAME_CHARACTERS = 64
_DESCRIPTION_CHARACTERS = 1024
_MAX_WORDS = 64
_WORD_CHARACTERS = 256
MAX_OUTPUT_BYTES = MIB
MAX_TIMEOUT_SECONDS = 86_400
MAX_ID_CHARACTERS = 256
MAX_PATTERNS = 1000
MAX_PATTERN_CHARACTERS = 512
MAX_LIBRARIES = 64
MAX_POOLS = 8
_LIBRARY = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_POOL = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_VERSION = re.compile(r"[0-9A-Za-z!+._ ]{1,160}")
LibraryHints = dict[str, list[list[str]]]
"""Name and version of each pool that has a library, by the names that code imports."""
_FIELDS = (
    *("id", "code", "context", "timeoutSeconds", "outputBytes"),
    *("tools", "files", "skills", "owner", "session", "libraries"),
)
_TOOL_FIELDS = ("url", "token", "allow", "wrappers")


@dataclass(frozen=True, kw_only=True)
class RequestedSkills:
    """Skills of a job, as the runner gets them."""

    sources: dict[str, Any] = field(default_factory=dict)
    """Code and tools by the name of the version."""
    modules: dict[str, str] = field(default_factory=dict)
    """Names of versions by the names of modules."""
    catalog: list[Any] = field(default_factory=list)
    """Entries of a search."""

    @classmethod
    def from_field(cls, value: object) -> "RequestedSkills":
        """Parse the field `skills`.

        Raises:
            InvalidRequest: a field of it is missing, unknown or invalid.
        """
        fields = check_fields(value, _SKILL_FIELDS, "skills")
        sources, modules, catalog = fields.get("sources", {}), fields.get("modules", {}), fields.get("catalog", [])
        if not isinstance(sources, dict) or len(sources) > MAX_SOURCES or not all(starmap(_is_source, sources.items())):
            raise InvalidRequest(f"skills.sources: must be at most {MAX_SOURCES} objects with code and tools by name")
        if sum(len(source["code"].encode("utf-8", "replace")) for source in sources.values()) > MAX_CODE_BYTES:
            raise InvalidRequest(f"skills.sources: at most {MAX_CODE_BYTES} bytes of code are allowed")
        if not isinstance(modules, dict) or not all(
            _MODULE.fullmatch(module) and isinstance(name, str) and name in sources for module, name in modules.items()
        ):
            raise InvalidRequest("skills.modules: must name a source for each module")
        if not isinstance(catalog, list) or len(catalog) > MAX_ENTRIES or not all(map(_is_entry, catalog)):
            raise InvalidRequest(f"skills.catalog: must be at most {MAX_ENTRIES} objects with a name")
        return cls(sources=sources, modules=modules, catalog=catalog)

    def to_message(self) -> dict[str, Any]:
        """Return the field `skills` of the runner's job."""
        return {"sources": self.sources, "modules": self.modules, "catalog": self.catalog}


def _is_source(name: str, source: object) -> bool:
    if not _OBJECT.fullmatch(name) or not isinstance(source, dict) or source.keys() != {"code", "tools"}:
        return False
    tools = source["tools"]
    return isinstance(source["code"], str) and isinstance(tools, list) and all(isinstance(tool, str) for tool in tools)


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


class SkillEvents:
    """Writer of the events `skill`."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._left = SAVED_SKILLS

    def add(self, message: dict[str, Any]) -> None:
        """Write an event. Drop it if the message is invalid or there are too many."""
        name, code, description = (message.get(field) for field in ("name", "code", "description"))
        tools, tags = _parse_words(message.get("tools")), _parse_words(message.get("tags"))
        if not self._left or not isinstance(name, str) or not isinstance(code, str) or not isinstance(description, str):
            return
        if tools is None or tags is None or len(code.encode("utf-8", "replace")) > SAVED_CODE_BYTES:
            return
        self._left -= 1
        self._log.append(
            "skill",
            name=name[:_NAME_CHARACTERS],
            code=code,
            description=description[:_DESCRIPTION_CHARACTERS],
            tools=tools,
            tags=tags,
        )


def _parse_words(value: object) -> list[str] | None:
    if not isinstance(value, list) or len(value) > _MAX_WORDS:
        return None
    return value if all(isinstance(word, str) and len(word) <= _WORD_CHARACTERS for word in value) else None


@dataclass(frozen=True, kw_only=True)
class RequestedTools:
    """Access to tools: the broker's address, the execution's grant and the allowed patterns."""

    url: str
    token: str
    allow: tuple[str, ...]

    @classmethod
    def from_field(cls, value: object) -> "RequestedTools":
        """Parse the field `tools`.

        Raises:
            InvalidRequest: a field of it is missing, unknown or invalid.
        """
        fields = check_fields(value, _TOOL_FIELDS, "tools")
        url, token, allow, wrappers = (fields.get(name) for name in _TOOL_FIELDS)
        if not isinstance(url, str) or parse_address(url) is None:
            raise InvalidRequest("tools.url: must be http://IP:PORT")
        token = check_token(token, "tools.token")
        if not isinstance(allow, list) or len(allow) > MAX_PATTERNS or not all(map(_is_pattern, allow)):
            raise InvalidRequest(f"tools.allow: must be at most {MAX_PATTERNS} patterns such as SERVER.TOOL")
        if wrappers is not None and not isinstance(wrappers, str):
            raise InvalidRequest("tools.wrappers: must be a string or null")
        return cls(url=url, token=token, allow=tuple(allow))

    def to_message(self) -> dict[str, Any]:
        """Return the field `tools` of the runner's job."""
        return {"url": self.url, "token": self.token, "allow": list(self.allow)}

    def __repr__(self) -> str:
        return f"RequestedTools(url={self.url!r}, allow={self.allow!r})"


@dataclass(frozen=True, kw_only=True)
class ExecutionRequest:
    """Code and its limits: `timeout_seconds` of wall time, `output_bytes` of each stream and of the result."""

    id: str
    code: str
    context: dict[str, Any]
    timeout_seconds: float
    output_bytes: int
    tools: RequestedTools | None = None
    files: RequestedFiles | None = None
    skills: RequestedSkills | None = None
    owner: str | None = None
    """Owner of this sandbox from now on. None: it is used once."""
    session: bool = False
    """Whether the interpreter stays for the owner's next job."""
    libraries: LibraryHints = field(default_factory=dict)
    """Libraries that only other pools have."""

    @classmethod
    def from_body(cls, body: bytes) -> "ExecutionRequest":
        """Parse the body.

        Raises:
            InvalidRequest: it is not a JSON object, or a field is missing, unknown or invalid.
        """
        fields = parse_body(body, _FIELDS)
        identifier, code, context = fields.get("id"), fields.get("code"), fields.get("context", {})
        if not isinstance(identifier, str) or not 1 <= len(identifier) <= MAX_ID_CHARACTERS:
            raise InvalidRequest(f"id: must be a string of 1 to {MAX_ID_CHARACTERS} characters")
        if not isinstance(code, str):
            raise InvalidRequest("code: must be a string")
        if not isinstance(context, dict):
            raise InvalidRequest("context: must be an object")
        return cls(
            id=identifier,
            code=code,
            context=context,
            timeout_seconds=_parse_timeout(fields.get("timeoutSeconds")),
            output_bytes=_parse_output_bytes(fields.get("outputBytes")),
            tools=None if fields.get("tools") is None else RequestedTools.from_field(fields["tools"]),
            files=None if fields.get("files") is None else RequestedFiles.from_field(fields["files"]),
            skills=None if fields.get("skills") is None else RequestedSkills.from_field(fields["skills"]),
            owner=(owner := _parse_owner(fields.get("owner"))),
            session=_parse_session(fields.get("session", False), owner),
            libraries=_parse_libraries(fields.get("libraries", {})),
        )

    def to_message(self) -> dict[str, Any]:
        """Return the runner's job."""
        return {
            "code": self.code,
            "context": self.context,
            "outputBytes": self.output_bytes,
            "tools": None if self.tools is None else self.tools.to_message(),
            "skills": None if self.skills is None else self.skills.to_message(),
            "session": self.session,
            **({"libraries": self.libraries} if self.libraries else {}),
        }


def _parse_owner(value: object) -> str | None:
    if value is None or (isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32}", value)):
        return value
    raise InvalidRequest("owner: must be 32 lower-case hexadecimal digits")


def _parse_session(value: object, owner: str | None) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest("session: must be true or false")
    if value and owner is None:
        raise InvalidRequest("session: needs an owner")
    return value


def _parse_libraries(value: object) -> LibraryHints:
    if isinstance(value, dict) and len(value) <= MAX_LIBRARIES and all(map(_LIBRARY.fullmatch, value)):
        lists = [pools for pools in value.values() if isinstance(pools, list) and len(pools) <= MAX_POOLS]
        if len(lists) == len(value) and all(_is_pool(pool) for pools in lists for pool in pools):
            return value
    raise InvalidRequest(
        f"libraries: must be an object of at most {MAX_LIBRARIES} names, each with at most {MAX_POOLS} pairs of a pool"
        " and a version"
    )


def _is_pool(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, str) for part in value):
        return False
    pool, version = value
    return _POOL.fullmatch(pool) is not None and _VERSION.fullmatch(version) is not None


def _parse_timeout(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MAX_TIMEOUT_SECONDS:
        return float(value)
    raise InvalidRequest(f"timeoutSeconds: must be a number above 0 and at most {MAX_TIMEOUT_SECONDS}")


def _parse_output_bytes(value: object) -> int:
    if type(value) is int and 0 <= value <= MAX_OUTPUT_BYTES:
        return value
    raise InvalidRequest(f"outputBytes: must be an integer from 0 to {MAX_OUTPUT_BYTES}")


def _is_pattern(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_PATTERN_CHARACTERS and "." in value
