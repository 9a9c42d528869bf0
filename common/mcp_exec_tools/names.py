"""Names of MCP servers and tools, and their Python identifiers.

MCP allows at most 128 characters of `[A-Za-z0-9_.-]`, case-sensitive (https://modelcontextprotocol.io, Tools). Some
servers send other names. An identifier cannot be converted back to the original name: callers keep a table.
"""

import hashlib
import keyword
import re
from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 64
"""Maximum length of a function's name in characters. A tool's name may have 128 by the protocol."""
_INITIALISMS: Final = frozenset(
    {"ai", "api", "cpu", "css", "csv", "db", "dns", "html", "http", "https", "id", "ip", "json", "jwt", "pdf", "pr"}
    | {"rv", "sha", "sql", "ssh", "tls", "ui", "uri", "url", "utc", "uuid", "xml", "yaml"}
)
"""Words that programmers write in capitals within camelCase names."""
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def words(name: str) -> list[str]:
    """Return the words of a camelCase, snake_case, kebab-case or dotted name, in lower case."""
    return [word.lower() for word in _WORD.findall(name)]


def identifier(name: str) -> str:
    """Return the Python identifier closest to the name: `resolve-library-id` is `resolve_library_id`."""
    text = re.sub(r"[^0-9A-Za-z_]", "_", name)
    if not text.strip("_"):
        text = "tool" + text
    if text[0].isdigit():
        text = "_" + text
    return text + "_" if keyword.iskeyword(text) or keyword.issoftkeyword(text) else text


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
    """Return the letters and digits of a name in lower case, in which all its spellings agree."""
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
            is_short = len(function) <= _LONGEST
            digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:6]
            functions[name] = function if is_unique and is_short else f"{function[: _LONGEST - 7]}_{digest}"
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
