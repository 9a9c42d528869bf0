"""Size of search results by detail level, over real servers' catalogs.

Tokens are an estimate (bytes / 4), because each model counts differently.

    python bench/levels.py --json levels.json
"""

import json
from collections.abc import Sequence

from harness import parser, table, write_json
from queries import read_catalogs

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.search.index import LEVELS, MAX_LIMIT, Index

BYTES_PER_TOKEN = 4


def costs(found: Sequence[Catalog]) -> dict[str, dict[str, float]]:
    """Compute for each level the bytes of compact JSON, and the size of 100 tools."""
    index = Index(found)
    rows = {}
    for level in LEVELS:
        told = index.search("", detail_level=level, limit=MAX_LIMIT)
        size = len(json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode())
        rows[level] = {
            "tools": len(told),
            "bytes": size,
            "bytes a tool": round(size / len(told), 1),
            "tokens per 100 (estimate)": round(100 * size / len(told) / BYTES_PER_TOKEN),
        }
    return rows


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    arguments = options.parse_args()
    rows = costs(read_catalogs())
    print(table(rows))
    write_json(arguments.json, {"rows": rows})


if __name__ == "__main__":
    main()
