"""Import of skills: `from skills.NAME import run`. The modules are made from the job and need no file."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from mcp_exec_sandbox.protocol import SKILLS_FOLDER
from mcp_exec_sandbox.skills.store import LoadedSkill, SkillStore, get_store
from mcp_exec_sandbox.tools.arguments import find_similar

_PREFIX = f"{SKILLS_FOLDER}."


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
    if close := find_similar(module, known):
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
