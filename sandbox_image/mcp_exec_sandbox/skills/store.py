"""Skills of this execution, as its job brought them. One store per process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_exec_tools.names import is_within

Emit = Callable[[dict[str, Any]], None]
"""Function that sends an event to the supervisor."""


@dataclass(frozen=True, kw_only=True)
class LoadedSkill:
    """Code of one version of a skill."""

    object: str
    """Name of the version, NAME-vVERSION."""
    code: str
    tools: tuple[str, ...]
    """Patterns of the tools that it calls."""


@dataclass(kw_only=True)
class SkillStore:
    """The skills that this execution may import, and the list of those that it may search."""

    sources: Mapping[str, LoadedSkill] = field(default_factory=dict)
    """By the names of their modules: NAME and NAME_vVERSION, with `_` for `-`."""
    catalog: tuple[Mapping[str, Any], ...] = ()
    """Entries of all approved skills, like those of `tools/list`."""
    allow: tuple[str, ...] = ()
    """Patterns of the tools that the execution may call."""
    emit: Emit = lambda event: None
    saved: int = 0
    """Skills that the code has saved."""

    @classmethod
    def from_job(cls, fields: Mapping[str, Any] | None, *, allow: tuple[str, ...], emit: Emit) -> "SkillStore":
        """Read the field `skills` of a job, which the supervisor has checked."""
        given = fields or {}
        sources = {
            name: LoadedSkill(object=name, code=source["code"], tools=tuple(source["tools"]))
            for name, source in given.get("sources", {}).items()
        }
        modules = {module: sources[name] for module, name in given.get("modules", {}).items()}
        return cls(sources=modules, catalog=tuple(given.get("catalog", ())), allow=allow, emit=emit)

    def find_missing_tools(self, source: LoadedSkill) -> list[str]:
        """Return the tools that a skill needs and that the execution may not call."""
        return [pattern for pattern in source.tools if not is_within(pattern, self.allow)]


_current: list[SkillStore] = []


def set_store(store: SkillStore) -> None:
    """Make `store` the one of this process."""
    _current[:] = [store]


def get_store() -> SkillStore:
    """Return the store of this process, or an empty one."""
    return _current[0] if _current else SkillStore()
