"""Files of the wrappers of servers, in each language of sandboxes."""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from mcp_exec_tools.catalog import Catalog, assign_modules
from mcp_exec_tools.languages import check_language
from mcp_exec_tools.overlays import Overlay, load_shipped
from mcp_exec_tools.wrappers.functions import list_functions
from mcp_exec_tools.wrappers.python import module as python
from mcp_exec_tools.wrappers.python.package import PythonPackage
from mcp_exec_tools.wrappers.typescript import declaration as typescript
from mcp_exec_tools.wrappers.typescript.package import TypeScriptPackage

HEADERS: Final = {"python": python.HEADER, "typescript": typescript.HEADER}
"""First line of every generated file, by language. A file with this line may be overwritten and removed."""


def build_files(
    catalogs: Iterable[Catalog],
    *,
    language: str = "python",
    stubs: bool = False,
    overlays: Mapping[str, Overlay] | None = None,
) -> dict[str, str]:
    """Build every file under `servers`, by its path: `github/__init__.py`, `github/create_issue.py`.

    In TypeScript they are `github/mod.js`, which has all functions, `github/mod.d.ts` and `github/create_issue.d.ts`.
    With stubs, Python's `.pyi` files too. Without overlays, those in this package apply. Each overlay adds its
    functions to the servers that have the tools that it needs.

    Raises ValueError if there is no such language.
    """
    check_language(language)
    ordered = sorted(catalogs, key=lambda catalog: catalog.server)
    modules = assign_modules(ordered)
    applied_overlays = [overlay for _, overlay in sorted((load_shipped() if overlays is None else overlays).items())]
    files: dict[str, str] = {}
    for catalog in ordered:
        functions = list_functions(catalog, applied_overlays, language=language)
        if language == "python":
            package = PythonPackage(functions=functions).files(stubs=stubs)
        else:
            package = TypeScriptPackage(functions=functions).files()
        files |= {f"{modules[catalog.server]}/{path}": text for path, text in package.items()}
    return dict(sorted(files.items()))


def format_catalog(catalogs: Iterable[Catalog]) -> str:
    """Format the catalogs as `catalog.json`, which the search in a sandbox reads: servers and tools ordered by name."""
    ordered = sorted(catalogs, key=lambda catalog: catalog.server)
    modules = assign_modules(ordered)
    servers = [
        {
            "server": catalog.server,
            "module": modules[catalog.server],
            "tools": [tool.to_json() for tool in catalog.tools],
        }
        for catalog in ordered
    ]
    # the order of properties is that of positional arguments
    return json.dumps({"servers": servers}, separators=(",", ":")) + "\n"
