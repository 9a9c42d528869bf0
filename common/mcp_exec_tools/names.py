"""Names of MCP servers and tools, and what they are called in Python.

MCP allows `[A-Za-z0-9_.-]`, 128 at most, case-sensitive (https://modelcontextprotocol.io, Tools); servers send others.
An original name is never guessed from an identifier: whoever maps keeps a table.
"""

import hashlib
import keyword
import re
from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 64
"""Characters of a function's name; a tool's name has 128 at most where its server keeps to the protocol."""
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def words(name: str) -> list[str]:
    """The words of a camelCase, snake_case, kebab-case or dotted name, in lower case."""
    return [word.lower() for word in _WORD.findall(name)]


def identifier(name: str) -> str:
    """A Python identifier as near to the name as can be: `resolve-library-id` is `resolve_library_id`."""
    text = re.sub(r"[^0-9A-Za-z_]", "_", name)
    if not text.strip("_"):
        text = "tool" + text
    if text[0].isdigit():
        text = "_" + text
    return text + "_" if keyword.iskeyword(text) or keyword.issoftkeyword(text) else text


def snake_case(name: str) -> str:
    """The name in snake_case, as an identifier: `listTables` is `list_tables`, `API-get-user` is `api_get_user`."""
    return identifier("_".join(words(name)) or name)


def camel_case(name: str) -> str:
    """The name in camelCase, as an identifier: `list_tables` is `listTables`."""
    first, *rest = words(name) or [name]
    return identifier(first + "".join(word.capitalize() for word in rest))


def function_names(names: Iterable[str]) -> dict[str, str]:
    """What each tool of one server is called in Python, by its original name: snake_case, and no two alike.

    Where two meet, each but the one that is spelled so already gets a suffix made from its original name, which
    therefore does not depend on what else the server has or in which order. So does each name that is longer than a
    file's name should be.
    """
    found: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(snake_case(name), []).append(name)
    for wanted, group in groups.items():
        for name in group:
            alone = len(group) == 1 or name == wanted
            short = len(wanted) <= _LONGEST
            digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:6]
            found[name] = wanted if alone and short else f"{wanted[: _LONGEST - 7]}_{digest}"
    return found


def split_tool(name: str) -> tuple[str, str]:
    """Server and tool of `github.create_issue` or `mcp__github__create_issue`; the tool's own name may hold both.

    Raises ValueError where the text is neither.
    """
    if name.startswith("mcp__"):
        server, mark, tool = name.removeprefix("mcp__").partition("__")
    else:
        server, mark, tool = name.partition(".")
    if not (server and mark and tool):
        raise ValueError(f"{name!r} names no tool: write SERVER.TOOL or mcp__SERVER__TOOL")
    return server, tool
