"""Names of MCP servers and tools, their Python identifiers, and the names nearest to a misspelled one.

MCP allows at most 128 characters of `[A-Za-z0-9_.-]`, case-sensitive (https://modelcontextprotocol.io, Tools). Some
servers send other names. An identifier cannot be converted back to the original name: callers keep a table.
"""

import hashlib
import keyword
import re
from collections.abc import Collection, Iterable
from heapq import nlargest
from itertools import islice
from typing import Final

_LONGEST: Final = 64
"""Maximum length of a function's name in characters. A tool's name may have 128 by the protocol."""
_LONGEST_PARAMETER: Final = 100
KEYWORDS: Final = frozenset({*keyword.kwlist, "__debug__"})
"""Words that Python does not accept as the name of a parameter."""
_SOFT_KEYWORDS: Final = ("_", "case", "match")
"""Those of Python 3.11: wrappers are the same whichever Python generates them."""
_NO_LETTER: Final = re.compile("[^0-9A-Za-z_]")
_INITIALISMS: Final = frozenset(
    {"ai", "api", "cpu", "css", "csv", "db", "dns", "html", "http", "https", "id", "ip", "json", "jwt", "pdf", "pr"}
    | {"rv", "sha", "sql", "ssh", "tls", "ui", "uri", "url", "utc", "uuid", "xml", "yaml"}
)
"""Words that programmers write in capitals within camelCase names."""
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_MAX_SHOWN: Final = 100
_MAX_KNOWN: Final = 500
_MAX_COMPARED: Final = 64
_MAX_CANDIDATES: Final = 20
"""Names that are compared exactly, which takes cubic time in their length: 0.4 ms for the worst of 64 characters."""


def normalize(name: str) -> str:
    """Return a name as Python reads it in code, in the form NFKC."""
    if name.isascii():
        return name
    # Imported for such a name, not in every idle sandbox.
    from unicodedata import normalize as normalize_text

    return normalize_text("NFKC", name)


def words(name: str) -> list[str]:
    """Return the words of a camelCase, snake_case, kebab-case or dotted name, in lower case."""
    if name.isascii():
        return [word.lower() for word in _WORD.findall(name)]
    parts = _clean(normalize(name)).split("_")
    return [word.lower() for part in parts for word in _split_camel_case(part) if word]


def identifier(name: str) -> str:
    """Return the Python identifier closest to the name: `resolve-library-id` is `resolve_library_id`.

    Letters of any script stay.
    """
    text = _clean(normalize(name))
    if not text.strip("_"):
        text = "tool" + text
    if not text.isidentifier():
        text = "_" + text
    return text + "_" if keyword.iskeyword(text) or text in _SOFT_KEYWORDS else text


def parameter_names(names: Iterable[str], *, reserved: Collection[str] = KEYWORDS) -> dict[str, str]:
    """Return the name of each parameter as a keyword in code, by its own name: `from_` for `from`, `cik_A` for `cik-A`.

    A parameter that code can write as it is keeps its name. The names are unique identifiers, normalised as Python
    does, and none of the reserved words. A name without any letter or digit is named by its position.
    """
    listed = list(dict.fromkeys(names))
    spelled = {name: name for name in listed if _is_plain(name, reserved)}
    taken = set(spelled)
    counts: dict[str, int] = {}
    for position, name in enumerate(listed, 1):
        if name in spelled:
            continue
        base = _to_keyword(name, position, reserved)
        code = base
        while code in taken:
            counts[base] = counts.get(base, 1) + 1
            code = f"{base}_{counts[base]}"
        spelled[name] = code
        taken.add(code)
    return {name: spelled[name] for name in listed}


def _is_plain(name: str, reserved: Collection[str]) -> bool:
    is_writable = name.isidentifier() and name not in reserved
    return len(name) <= _LONGEST_PARAMETER and is_writable and normalize(name) == name


def _to_keyword(name: str, position: int, reserved: Collection[str]) -> str:
    text = _clean(normalize(name[:_LONGEST_PARAMETER]))[:_LONGEST]
    text = text if name.startswith("_") else text.lstrip("_")
    text = text if name.endswith("_") else text.rstrip("_")
    if not text.strip("_"):
        return f"parameter_{position}"
    text = text if text.isidentifier() else "_" + text
    return text + "_" if text in reserved else text


def _clean(text: str) -> str:
    """Replace each character that an identifier can't have by `_`."""
    if text.isascii():
        return _NO_LETTER.sub("_", text)
    return "".join(character if ("_" + character).isidentifier() else "_" for character in text)


def _split_camel_case(part: str) -> list[str]:
    """Split a word of any script before each capital letter that follows a small one."""
    starts = [at for at in range(1, len(part)) if part[at].isupper() and not part[at - 1].isupper()]
    return [part[start:end] for start, end in zip([0, *starts], [*starts, len(part)], strict=True)]


def snake_case(name: str) -> str:
    """Return an identifier in snake_case: `listTables` is `list_tables`, `API-get-user` is `api_get_user`."""
    return identifier("_".join(words(name)) or name)


def camel_case(name: str, *, initialisms: bool = False) -> str:
    """Return an identifier in camelCase: `list_tables` is `listTables`.

    With `initialisms`, words such as SQL and URL are in capitals: `execute_sql` is `executeSQL`.
    """
    first, *rest = words(name) or [name]
    return identifier(first + "".join(_capitalize(word, initialisms=initialisms) for word in rest))


def fold(name: str) -> str:
    """Return the letters and digits of a name in lower case: all its spellings agree in them."""
    return "".join(words(name))


def _capitalize(word: str, *, initialisms: bool) -> str:
    return word.upper() if initialisms and word in _INITIALISMS else word.capitalize()


def function_names(names: Iterable[str]) -> dict[str, str]:
    """Return the function of each tool of one server, by the tool's name: unique and in snake_case.

    If two names collide, each gets a suffix made from its original name, except a name that is in snake_case already.
    The suffix therefore does not depend on the server's other tools or on their order. A name that is too long for a
    file name gets a suffix too.
    """
    functions: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(snake_case(name), []).append(name)
    for function, group in groups.items():
        for name in group:
            is_unique = len(group) == 1 or name == function
            # a file's name has 255 bytes
            longest = _LONGEST if function.isascii() else _LONGEST // 2
            digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:6]
            is_kept = is_unique and len(function) <= longest
            functions[name] = function if is_kept else f"{function[: longest - 7]}_{digest}"
    return functions


def split_tool(name: str) -> tuple[str, str]:
    """Split `github.create_issue` or `mcp__github__create_issue` into server and tool.

    The tool's name may contain both separators. Raises ValueError if the text has neither form.
    """
    if name.startswith("mcp__"):
        server, separator, tool = name.removeprefix("mcp__").partition("__")
    else:
        server, separator, tool = name.partition(".")
    if not (server and separator and tool):
        raise ValueError(f"{name!r} names no tool: write SERVER.TOOL or mcp__SERVER__TOOL")
    return server, tool


def explain_missing_server(server: str, known: Iterable[str]) -> str:
    """Return the words for a server that does not exist. `known` are the servers with tools; 100 of them are named."""
    names = ", ".join(sorted(known)[:_MAX_SHOWN]) or "none"
    return f"there is no server {server[:_MAX_SHOWN]}; servers with tools: {names}"


def find_close_names(name: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return the known names nearest to a name, best first: the same words, then few different letters.

    Reads the first 500 names only and compares 20 of them exactly, so that the time is bounded: 30 ms.
    """
    name = name[:_MAX_COMPARED]
    names = [known_name for known_name in islice(known, _MAX_KNOWN) if len(known_name) <= _MAX_COMPARED]
    name_words = words(name)
    same = [known_name for known_name in names if known_name != name and words(known_name) == name_words]
    near = _find_near(name, names, limit=limit, cutoff=0.6)
    by_lower_case = {known_name.lower(): known_name for known_name in names}
    near += [by_lower_case[match] for match in _find_near(name.lower(), by_lower_case, limit=limit, cutoff=0.75)]
    containing = [known_name for known_name in names if name_words and set(name_words) < set(words(known_name))]
    return [match for match in dict.fromkeys([*same, *near, *containing]) if match != name][:limit]


def _find_near(name: str, names: Iterable[str], *, limit: int, cutoff: float) -> list[str]:
    """Return the most similar names, best first, as difflib.get_close_matches does, of those with the same letters."""
    from difflib import SequenceMatcher  # imported if a name is misspelled, not in every idle sandbox

    matcher = SequenceMatcher()
    matcher.set_seq2(name)

    def measure(other: str) -> tuple[float, str]:
        matcher.set_seq1(other)
        return (matcher.quick_ratio() if matcher.real_quick_ratio() >= cutoff else 0.0, other)

    candidates = [other for score, other in nlargest(_MAX_CANDIDATES, map(measure, names)) if score >= cutoff]
    scores = []
    for other in candidates:
        matcher.set_seq1(other)
        scores.append((matcher.ratio(), other))
    return [other for score, other in nlargest(limit, scores) if score >= cutoff]
