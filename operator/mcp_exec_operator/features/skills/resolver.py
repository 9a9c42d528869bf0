"""The skills of an execution: those that its code names, with the code of each, if the execution may use them.

Names are found by a search of the text, not by a parser: a name in a comment counts as well. Each expression begins
with letters that Python's `re` searches for quickly; what must precede them is checked then.
"""

import asyncio
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.constants import Language
from mcp_exec_api.files import Owner
from mcp_exec_api.skill import MAX_SKILLS_PER_EXECUTION, content_digest, module_name, object_name, split_module
from mcp_exec_common.supervisor.protocol import JobSkill, JobSkills
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.features.skills.index import SkillEntry, SkillIndex
from mcp_exec_tools.patterns import ToolPatterns
from mcp_exec_tools.text import shorten

MAX_NAMES: Final = 256
"""Names that count in one code; further ones are ignored."""
_MAX_MATCHES: Final = 2048
"""Places in one code that are looked at."""
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_PATH: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_QUOTES: Final = frozenset("\"'`")
_NAMED: Final = re.compile(
    r"skills(?:\.(?P<dotted>[a-z][a-z0-9_]{0,63})(?!\w)"
    r"|[ \t]{1,20}import[ \t]{0,20}(?P<listed>\([^)]{0,500}\)|[^\n#]{0,500}))"
)
_FROM: Final = re.compile(r"(?<![\w.])from[ \t]{1,20}\Z")
_CALLED: Final = re.compile(r"run(?:_s|S)kill\(\s{0,20}[\"'`]([a-z][a-z0-9_-]{0,63})[\"'`]")
_SEARCHES: Final = re.compile(r"search_?(?:[sS]kills|[tT]ools)(?!\w)")
_MODULE: Final = "skills/"
"""Begin of a module's name where code names modules by texts."""
_HINTS: Final = ("skill", "search_", "searchSkills", "searchTools", "runSkill")
"""Code that contains none of them names no skills and searches none."""
MAX_CODE_BYTES: Final = 512 * 1024
"""Bytes of the skills of one execution. A supervisor accepts 4 MiB of a job, and JSON may take 6 bytes for one."""
_CACHE_BYTES: Final = 16 * 1024 * 1024
_SYNC_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 0.05
_CHECKS: Final = 4
"""How often it is checked whether a skill appears: executions and skills come by different watches."""


@dataclass(frozen=True, kw_only=True)
class NamedSkills:
    """What code says of skills."""

    modules: tuple[str, ...] = ()
    """Modules below `skills` that the code may import, at most MAX_NAMES."""
    searches: bool = False
    """Whether it may search skills, with or without tools."""


def may_name_skills(code: str) -> bool:
    """Return whether code may name or search skills: what says no is certain."""
    return any(hint in code for hint in _HINTS)


def find_skills(code: str, language: Language) -> NamedSkills:
    """Return what code says of skills. Takes linear time; most code costs a few searches for a word."""
    return _find(code, language) if may_name_skills(code) else NamedSkills()


@lru_cache(maxsize=16)
def _find(code: str, language: Language) -> NamedSkills:
    """Read the code, once for an execution: its spec is checked before it waits and again when it is bound."""
    found: dict[str, None] = {}
    for name in _MODULE_LISTS[language](code):
        found[name] = None
        if len(found) == MAX_NAMES:
            break
    searches = any(_begins_word(code, match.start()) for match in _iterate(_SEARCHES, code))
    return NamedSkills(modules=tuple(found), searches=searches)


def _list_modules(code: str) -> Iterator[str]:
    for match in _iterate(_NAMED, code):
        start = match.start()
        if match["dotted"] and _begins_word(code, start) and not code.endswith(".", 0, start):
            yield match["dotted"]
        elif match["listed"] and _FROM.search(code, max(0, start - 32), start):
            yield from _WORD.findall(match["listed"])
    yield from _list_called(code)


def _list_called(code: str) -> Iterator[str]:
    """Yield the modules of skills that code calls by their names."""
    for match in _iterate(_CALLED, code):
        if _begins_word(code, match.start()):
            yield match[1].replace("-", "_")


def _list_paths(code: str) -> Iterator[str]:
    """Yield the modules of texts such as `"skills/weekly_report"`, after those of calls."""
    yield from _list_called(code)
    place = code.find(_MODULE)
    for _ in range(_MAX_MATCHES):
        if place < 0:
            return
        end = place + len(_MODULE)
        if (word := _PATH.match(code, end)) and code[place - 1 : place] in _QUOTES:
            yield word[0].replace("-", "_")
        place = code.find(_MODULE, end)


_MODULE_LISTS: Final[Mapping[Language, Callable[[str], Iterator[str]]]] = {
    "python": _list_modules,
    "typescript": _list_paths,
}
"""How code names the modules of skills, by language."""


def _iterate(pattern: re.Pattern[str], code: str) -> Iterator[re.Match[str]]:
    return islice(pattern.finditer(code), _MAX_MATCHES)


def _begins_word(code: str, start: int) -> bool:
    before = code[start - 1 : start]
    return not (before.isalnum() or before == "_")


class SkillsRefused(Exception):
    """An execution that names a skill that it may not use, or too many. The message names the field."""


@dataclass(kw_only=True, eq=False)
class CodeCache:
    """Code of skills by uid and digest, read when it is needed. The least recently used is dropped."""

    api: OperatorApi
    limit: int = _CACHE_BYTES
    _codes: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)
    _used: int = 0

    async def read(self, entry: SkillEntry) -> str | None:
        """Return the code of a version, or None if the object was deleted or changed meanwhile. Raises ApiError."""
        key = (entry.uid, entry.reading.digest)
        if key in self._codes:
            self._codes.move_to_end(key)
            return self._codes[key]
        body = await self.api.get("Skill", entry.namespace, entry.object)
        spec = (body or {}).get("spec") or {}
        if body is None or body["metadata"]["uid"] != entry.uid or content_digest(spec) != entry.reading.digest:
            return None
        code = str(spec["code"])
        if key not in self._codes:
            self._codes[key] = code
            self._used += len(code)
        while self._used > self.limit:
            _, dropped = self._codes.popitem(last=False)
            self._used -= len(dropped)
        return code


@dataclass(frozen=True, kw_only=True)
class SkillResolver:
    """Finds the skills of executions. An execution that names none costs a search of its code for one word."""

    index: SkillIndex
    codes: CodeCache

    async def resolve(self, spec: CodeExecutionSpec, *, owner: Owner, language: Language) -> JobSkills | None:
        """Return the skills of an execution of a language, or None if it names none.

        Names in code that stand for no skill of the execution are left out: their import explains the problem. Raises
        SkillsRefused and ApiError.
        """
        named = find_skills(spec.build_source(language), language)
        waiting = deque(named.modules)
        if not waiting and not spec.skills and not named.searches:
            return None
        await self._wait_until_known([*waiting, *map(module_name, spec.skills)], owner, language)
        self._check_reference(spec, owner, language)
        for number, name in enumerate(spec.skills):
            if self.index.find(name, None, owner=owner, language=language) is None:
                raise SkillsRefused(f"spec.skills.{number}: {_explain_missing(name, language)}")
            waiting.append(module_name(name))
        sources: dict[str, JobSkill] = {}
        modules: dict[str, str] = {}
        size, seen = 0, set(waiting)
        searched = named.searches
        while waiting:
            module = waiting.popleft()
            entry = self.index.find(*split_module(module), owner=owner, language=language)
            text = None if entry is None else await self.codes.read(entry)
            if entry is None or text is None:
                continue
            modules[module] = entry.object
            if entry.object in sources:
                continue
            size += len(text.encode("utf-8", "surrogatepass"))
            if len(sources) == MAX_SKILLS_PER_EXECUTION or size > MAX_CODE_BYTES:
                limit = f"at most {MAX_SKILLS_PER_EXECUTION} skills with {MAX_CODE_BYTES} bytes of code are allowed"
                raise SkillsRefused(f"spec.code: it names too many skills, or too large ones, {limit}")
            sources[entry.object] = JobSkill(code=text, tools=list(entry.tools))
            inner = find_skills(text, language)
            searched = searched or inner.searches
            more = [name for name in inner.modules if name not in seen]
            seen.update(more)
            waiting += more
        catalog = self.index.list_catalog(owner.namespace, language) if searched else []
        return JobSkills(sources=sources, modules=modules, catalog=catalog) if sources or catalog else None

    async def _wait_until_known(self, modules: list[str], owner: Owner, language: Language) -> None:
        """Wait until the skills of the namespace are known, and shortly for those that were saved a moment ago."""
        if (synced := self.index.synced.get(owner.namespace)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_SECONDS):
                    await synced.wait()
        for _ in range(_CHECKS):
            found = (self.index.find(*split_module(name), owner=owner, language=language) for name in modules)
            if all(entry is not None for entry in found):
                return
            await asyncio.sleep(_CHECK_SECONDS)

    def _check_reference(self, spec: CodeExecutionSpec, owner: Owner, language: Language) -> None:
        """Raise SkillsRefused if the execution may not use the skill that it runs, or a tool that the skill needs."""
        reference = spec.skill_ref
        if reference is None:
            return
        entry = self.index.find(reference.name, reference.version, owner=owner, language=language)
        if entry is None:
            name = object_name(reference.name, reference.version) if reference.version else reference.name
            raise SkillsRefused(f"spec.skillRef: {_explain_missing(name, language)}")
        allowed = ToolPatterns(spec.tools)
        if missing := [pattern for pattern in entry.tools if not allowed.cover(pattern)]:
            needs = shorten(", ".join(missing), 500)
            raise SkillsRefused(f"spec.tools: skill {entry.object} needs {needs}, which spec.tools does not allow")


def _explain_missing(name: str, language: Language) -> str:
    return (
        f"there is no skill {name} in {language} that this execution may use; it must be approved, or a draft of its "
        "own caller"
    )
