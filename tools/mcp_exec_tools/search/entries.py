"""Entries of the search index: functions that code can import, and their words with weights."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Final

from mcp_exec_tools.catalog import SKILLS, Catalog, Schema, Tool
from mcp_exec_tools.names import words
from mcp_exec_tools.overlays import Additions, apply_overlays, load_shipped
from mcp_exec_tools.schemas.parameters import read_parameters
from mcp_exec_tools.schemas.reading import as_mapping, as_sequence
from mcp_exec_tools.search.synonyms import SAME

_WORD: Final = re.compile(r"[^\W_]+")
_DESCRIPTION: Final = 600
"""Number of a description's characters that count. Later ones describe the usage, not the purpose."""
_PARAMETER_DESCRIPTION: Final = 200
_PARAMETERS: Final = 40
_VALUES: Final = 20
_VALUE: Final = 40
"""Numbers of values of a parameter that count, and of their characters: `approve` finds a review by its events."""
_NAME, _SERVER, _TEXT, _PARAMETER = 8.0, 3.0, 1.0, 0.6
"""Weights of a word by the field that contains it."""
_ADDED: Final = 2.0
"""The same as `_NAME` for functions of overlays. Lower, so that tools with the same words come first."""
_B: Final = 0.4
AS_IS: Final = "="
"""Prefix of a name's word with its ending: `projects` matches `list_projects` better than `pause_project`."""


@dataclass(frozen=True, kw_only=True)
class SearchEntry:
    """Function that can be imported: a tool's or an overlay's."""

    server: str
    module: str
    function: str
    name: str
    """The tool's name. The function's name is made of it."""
    needs: tuple[str, ...]
    """Names of the tools that it calls."""
    description: str
    input_schema: Schema
    output_schema: Schema | None = None
    added: bool = False
    """Whether it comes from an overlay."""
    is_skill: bool = False
    """Whether it is the function `run` of a skill."""
    names: "CamelNames | None" = None
    """Other names of the server's functions."""

    def to_json(self, level: str, *, language: str = "python") -> dict[str, Any]:
        """Return the entry as a search result of a level of detail, for code in a language."""
        is_python = language == "python"
        name = self.function if is_python or self.names is None else self.names.find(self.function)
        result: dict[str, Any] = {"name": name, "server": self.server}
        if self.is_skill:
            result["kind"] = "skill"
        if level == "name_only":
            return result
        package, function = (f"servers/{self.module}", name)
        if self.is_skill:
            package, function = f"{SKILLS}/{self.function}", "run"
        line = f'import {{ {function} }} from "{package}"'
        if is_python:
            line = f"from {package.replace('/', '.')} import {function}"
        result |= {"description": self.description, "import": line}
        if level == "full":
            # Imported if it is needed, not in every idle sandbox.
            from mcp_exec_tools.wrappers.signature import format_signature

            result |= {
                "signature": format_signature(function, self.input_schema, self.output_schema, language=language),
                "input_schema": self.input_schema,
                "output_schema": self.output_schema,
            }
        return result


@dataclass(kw_only=True)
class CamelNames:
    """Names of a server's functions in camelCase, as TypeScript has them."""

    added: Additions

    def find(self, function: str) -> str:
        """Return the name that code imports: the function's own if it has none in camelCase."""
        # Imported if it is needed, not in every idle sandbox.
        from mcp_exec_tools.wrappers.typescript.text import declare_name

        return declare_name(next(iter(self._aliases.get(function, ())), function))

    @cached_property
    def _aliases(self) -> Mapping[str, tuple[str, ...]]:
        from mcp_exec_tools.wrappers.functions import choose_aliases

        return choose_aliases(self.added)


def list_entries(catalog: Catalog, module: str) -> list[SearchEntry]:
    """List the functions of a server's package, ordered by name."""
    if catalog.has_skills:
        return [_build_skill(tool, module) for tool in catalog.tools]
    added = apply_overlays(load_shipped().values(), catalog)
    names = CamelNames(added=added)
    functions = [(tool, False) for tool in added.catalog.tools]
    functions += [(function.tool, True) for function in added.functions.values()]
    entries = [
        SearchEntry(
            server=catalog.server,
            module=module,
            function=tool.function,
            name=tool.function if is_added else tool.name,
            needs=(tool.name,),
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.returned_schema,
            added=is_added,
            names=names,
        )
        for tool, is_added in functions
    ]
    entries += [
        SearchEntry(
            server=catalog.server,
            module=module,
            function=name,
            name=name,
            needs=function.needs,
            description=function.summary,
            input_schema=function.input_schema,
            added=True,
            names=names,
        )
        for name, function in added.composed.items()
    ]
    return sorted(entries, key=lambda entry: entry.name)


def _build_skill(tool: Tool, module: str) -> SearchEntry:
    """Return the entry of a skill, which may be found by all: it needs the tools only when it runs."""
    return SearchEntry(
        server=SKILLS,
        module=module,
        function=tool.name,
        name=tool.name,
        needs=(),
        description=tool.description,
        input_schema=tool.input_schema,
        is_skill=True,
    )


@dataclass(frozen=True, kw_only=True)
class EntryTerms:
    """Words of one tool and their weights."""

    fixed: dict[str, float]
    """Words of the names. Their weight does not depend on the length of the text."""
    text: dict[str, float]
    """Words of the free text. Their weight falls as the text gets longer."""
    length: int

    @classmethod
    def from_entry(cls, entry: SearchEntry) -> "EntryTerms":
        """Return the words of an entry and of its server, with their weights."""
        fixed = {stem(word): _SERVER for word in words(entry.server)}
        for word in words(entry.name):
            for term in (stem(word), AS_IS + word):
                fixed[term] = fixed.get(term, 0.0) + (_ADDED if entry.added else _NAME)
        if entry.added:  # its description repeats those of the tools that it calls, so only the name counts
            return cls(fixed=fixed, text={}, length=0)
        description_words = _WORD.findall(entry.description[:_DESCRIPTION].lower())
        parameter_words = _WORD.findall(_join_parameters(entry.input_schema))
        text = dict.fromkeys(map(stem, parameter_words), _PARAMETER)
        for word, times in Counter(map(stem, description_words)).items():
            text[word] = text.get(word, 0.0) + _TEXT * times
        return cls(fixed=fixed, text=text, length=len(description_words) + len(parameter_words))


def _join_parameters(schema: Mapping[str, Any]) -> str:
    """Return the names, descriptions and possible values of the parameters, in lower case."""
    pieces: list[str] = []
    for name, parameter in islice(read_parameters(schema).schemas.items(), _PARAMETERS):
        pieces.append(_split_name(name))
        about = as_mapping(parameter)
        if isinstance(description := about.get("description"), str):
            pieces.append(description[:_PARAMETER_DESCRIPTION])
        values = (*as_sequence(about.get("enum")), about.get("const"))[:_VALUES]
        pieces.extend(_split_name(value[:_VALUE]) for value in values if isinstance(value, str))
    return " ".join(pieces).lower()


@lru_cache(maxsize=2048)
def _split_name(name: str) -> str:
    return " ".join(words(name))


def build_postings(terms: list[EntryTerms]) -> dict[str, list[tuple[int, float]]]:
    """Return the numbers of the entries with each term, and the term's weight in each."""
    average = (sum(entry_terms.length for entry_terms in terms) / len(terms) if terms else 0.0) or 1.0
    postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for number, entry_terms in enumerate(terms):
        norm, fixed = 1.0 / (1 - _B + _B * entry_terms.length / average), entry_terms.fixed
        for term, weight in fixed.items():
            postings[term].append((number, weight + norm * entry_terms.text.pop(term, 0.0)))
        for term, weight in entry_terms.text.items():
            postings[term].append((number, weight * norm))
    return dict(postings)


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return the word without its ending, so that `issues`, `created` and `creating` match `issue` and `create`.

    An abbreviation becomes the stem of the full word: `repo` is `repository`.
    """
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-3] + "y" if word.endswith("ies") and len(word) > 4 else word[:-1]
        if word.endswith(("che", "she", "sse", "xe")):
            word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            break
    word = word[:-1] if len(word) > 3 and word.endswith("e") else word
    return _load_same().get(word, word)


@lru_cache(maxsize=1)
def _load_same() -> dict[str, str]:
    return {word: standard for standard, others in SAME.items() for word in others.split()}


def find_stems(text: str) -> list[str]:
    """Return the stems of all words of a text, in order."""
    return [stem(word) for word in _WORD.findall(text.lower())]
