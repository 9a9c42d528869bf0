"""Skills of this execution, as its job brought them. One store per process."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from mcp_exec_sandbox.protocol import SAVED_CODE_BYTES, SAVED_SKILLS, SKILL_EVENT, SKILLS_FOLDER
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.names import find_close_names
from mcp_exec_tools.patterns import ToolPatterns
from mcp_exec_tools.search.index import Index

Emit = Callable[[dict[str, Any]], None]
"""Function that sends an event to the supervisor."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_PREFIX = f"{SKILLS_FOLDER}."


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
        allowed = ToolPatterns(self.allow)
        return [pattern for pattern in source.tools if not allowed.cover(pattern)]


_current: list[SkillStore] = []


def set_store(store: SkillStore) -> None:
    """Make `store` the one of this process."""
    _current[:] = [store]


def get_store() -> SkillStore:
    """Return the store of this process, or an empty one."""
    return _current[0] if _current else SkillStore()


def search_skills(query: str = "", detail_level: str = "with_description", limit: int = 20) -> list[dict[str, Any]]:
    """Return the approved skills that match the query, best first. An empty query lists all.

    Args:
        query: a task, or the name of a skill.
        detail_level: `name_only`, `with_description` (also description, import) or `full` (also signature and
            input_schema).
        limit: maximum number of skills.

    Raises:
        ValueError: the level or the limit is invalid.
    """
    index = Index([Catalog.from_skills(get_store().catalog)])
    found: list[dict[str, Any]] = index.search(query, detail_level=detail_level, limit=limit)
    return found


async def run_skill(name: str, /, **arguments: Any) -> Any:
    """Call a skill by its name and return its result.

    A name that the code computes must be listed in the execution's `spec.skills`.

    Raises:
        ImportError: the execution may not use the skill, or may not call a tool that it needs.
    """
    module = importlib.import_module(f"{SKILLS_FOLDER}.{name.replace('-', '_')}")
    value = module.run(**arguments)
    return await value if inspect.isawaitable(value) else value


def save_skill(
    name: str,
    code: str | Callable[..., Any],
    description: str,
    *,
    tools: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> None:
    """Save code as a draft of a skill. The execution's `status.skills` shows its name and version, or why not.

    Until an approver approves it, only executions of the same caller and user can use it.

    Args:
        name: lower-case letters and digits, in words that `-` separates.
        code: Python source that defines a function `run`, or such a function. At most 64 KiB.
        description: what it does and when to use it, in one line.
        tools: tools that it calls, for example `github.list_issues`.
        tags: further words that searches match.

    Raises:
        ValueError: an argument is invalid.
    """
    store = get_store()
    source = code if isinstance(code, str) else inspect.getsource(code)
    if not isinstance(name, str) or len(name) > 50 or not _NAME.fullmatch(name):
        raise ValueError(f"name: {str(name)[:60]!r} must be lower-case letters and digits in words that '-' separates")
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= 1024:
        raise ValueError("description: write what the skill does in 1 to 1024 characters")
    if (size := len(source.encode("utf-8", "replace"))) > SAVED_CODE_BYTES:
        raise ValueError(f"code: it has {size} bytes; at most {SAVED_CODE_BYTES} are allowed")
    if not re.search(r"^(async +)?def +run *\(", source, re.MULTILINE):
        raise ValueError("code: it defines no function `run` at its top level")
    if store.saved >= SAVED_SKILLS:
        raise ValueError(f"one execution can save {SAVED_SKILLS} skills")
    store.saved += 1
    event = {"name": name, "code": source, "description": " ".join(description.split())}
    store.emit({"type": SKILL_EVENT, **event, "tools": list(map(str, tools)), "tags": list(map(str, tags))})


class SkillLoader:
    """Loader of one skill's module."""

    def __init__(self, source: LoadedSkill, path: str) -> None:
        self._source = source
        self._path = path

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: the import system creates the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the code of the skill in its module.

        Raises:
            ImportError: the execution may not call a tool that the skill needs.
        """
        if missing := get_store().find_missing_tools(self._source):
            raise ImportError(
                f"skill {self._source.object} needs the tools {', '.join(missing)}, which this execution may not call. "
                "The creator of the execution adds them to its spec.tools"
            )
        module.__file__ = self._path
        exec(compile(self._source.code, self._path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102

    def get_source(self, name: str) -> str:
        """Return the code, for tracebacks and `inspect`."""
        return self._source.code


class SkillFinder:
    """Finder of `sys.meta_path` for modules below `skills`."""

    def __init__(self, workspace: Path) -> None:
        self._folder = workspace / SKILLS_FOLDER

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a skill's module, or None for all other modules.

        Raises:
            ModuleNotFoundError: the execution has no such skill, and the workspace has no such module.
        """
        module = name.removeprefix(_PREFIX)
        if module == name or "." in module:
            return None
        source = get_store().sources.get(module)
        if source is not None:
            file = str(self._folder / f"{source.object}.py")
            return ModuleSpec(name, SkillLoader(source, file), origin=file)  # type: ignore[arg-type]
        if any((self._folder / part).exists() for part in (f"{module}.py", module)):
            return None
        # an error that names the module would be taken by `from skills import X` for its own, and hidden
        raise ModuleNotFoundError(_explain(module, get_store()))


def _explain(module: str, store: SkillStore) -> str:
    known = sorted({*store.sources, *(str(entry.get("name")) for entry in store.catalog)})
    text = f"there is no skill {module.replace('_', '-')!r} that this execution may use"
    if close := find_close_names(module, known):
        return f"{text}. Did you mean: {', '.join(close)}?"
    return (
        f"{text}: a skill must be approved, or be a draft of the execution's own caller. "
        "A skill whose name is computed must be listed in spec.skills"
    )


def install_skills(workspace: Path) -> None:
    """Make the skills of a job importable, in place of those of a former job of this process."""
    package = sys.modules.get(SKILLS_FOLDER)
    if package is not None:
        package.__path__ = [str(workspace / SKILLS_FOLDER)]
    for name in [name for name in sys.modules if name.startswith(_PREFIX)]:
        del sys.modules[name]
    if not any(isinstance(finder, SkillFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SkillFinder(workspace))
