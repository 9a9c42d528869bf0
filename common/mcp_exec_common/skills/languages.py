"""Skills in each language: what reads their interface, and what makes one of the code of a run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import Language
from mcp_exec_common.skills import interface, typescript
from mcp_exec_common.skills.interface import SkillInterface


@dataclass(frozen=True, kw_only=True)
class _Reader:
    read: Callable[[str], SkillInterface]
    promote: Callable[[str, Iterable[str]], str]


_READERS: Final[Mapping[Language, _Reader]] = {
    "python": _Reader(read=interface.read_interface, promote=interface.promote_code),
    "typescript": _Reader(read=typescript.read_interface, promote=typescript.promote_code),
}


def read_interface(code: str, language: Language) -> SkillInterface:
    """Return the interface of a skill's code. Raises InvalidSkill if it has none."""
    return _READERS[language].read(code)


def promote_code(code: str, names: Iterable[str], language: Language) -> str:
    """Return the code of a run as that of a skill, given the names of its context. Raises InvalidSkill."""
    return _READERS[language].promote(code, names)
