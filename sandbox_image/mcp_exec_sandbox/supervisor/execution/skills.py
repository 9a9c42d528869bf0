"""Skills of a run: the job's field `skills`, and events of skills that the code saves.

The runner's messages are hostile input: checked and bounded.
"""

import re
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from mcp_exec_sandbox.protocol import SAVED_CODE_BYTES, SAVED_SKILLS
from mcp_exec_sandbox.supervisor.execution.event_log import EventLog
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest

MAX_SOURCES = 64
MAX_CODE_BYTES = 1024 * 1024
"""Maximum size of all code together."""
MAX_ENTRIES = 500
_MODULE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OBJECT = re.compile(r"[a-z][a-z0-9-]{0,62}")
_FIELDS = ("sources", "modules", "catalog")
_NAME_CHARACTERS = 64
_DESCRIPTION_CHARACTERS = 1024
_MAX_WORDS = 64
_WORD_CHARACTERS = 256


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
        if not isinstance(value, dict):
            raise InvalidRequest("skills: must be an object")
        for name in value:
            if name not in _FIELDS:
                raise InvalidRequest(f"skills.{name[:100]}: unknown field")
        sources, modules, catalog = value.get("sources", {}), value.get("modules", {}), value.get("catalog", [])
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
