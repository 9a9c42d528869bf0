"""The checked body of `POST /v1/execution`."""

import re
from dataclasses import dataclass, field
from typing import Any

from mcp_exec_sandbox.supervisor.execution.skills import RequestedSkills
from mcp_exec_sandbox.supervisor.files.request import RequestedFiles, parse_address
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, parse_body
from mcp_exec_sandbox.supervisor.settings import MIB

MAX_OUTPUT_BYTES = MIB
MAX_TIMEOUT_SECONDS = 86_400
MAX_ID_CHARACTERS = 256
MAX_TOKEN_CHARACTERS = 16_384
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
        if not isinstance(value, dict):
            raise InvalidRequest("tools: must be an object")
        for name in value:
            if name not in _TOOL_FIELDS:
                raise InvalidRequest(f"tools.{name[:100]}: unknown field")
        url, token, allow, wrappers = (value.get(name) for name in _TOOL_FIELDS)
        if not isinstance(url, str) or parse_address(url) is None:
            raise InvalidRequest("tools.url: must be http://IP:PORT")
        if not isinstance(token, str) or not re.fullmatch(rf"[!-~]{{1,{MAX_TOKEN_CHARACTERS}}}", token):
            raise InvalidRequest(f"tools.token: must be 1 to {MAX_TOKEN_CHARACTERS} visible ASCII characters")
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
    """Whom the sandbox serves from now on. None: it is used once."""
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
