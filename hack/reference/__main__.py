"""Generate the pages of docs/reference that are tables of what types declare.

Pages that another file of the repository shows, or the help of a command, are only made for the documentation site.

python -m hack.reference           writes the other pages
python -m hack.reference --check   writes nothing and exits with 1 if a page differs
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from hack.reference import accounts, command_line, http_api, metrics, reasons, resources

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"


def build_pages() -> dict[str, str]:
    """Build the pages of the repository, by path below docs/reference."""
    return {
        "accounts.md": accounts.build_page(),
        "metrics.md": metrics.build_page(),
        "reasons.md": reasons.build_page(),
    }


def build_site_pages() -> dict[str, str]:
    """Build the pages that only the site has, by path: of openapi.json, of crds/*.yaml and of `mcp-exec --help`."""
    pages = {
        **resources.build_pages(),
        "http-api.md": http_api.build_page(),
        "command-line.md": command_line.build_page(),
    }
    return {f"docs/reference/{name}": text for name, text in pages.items()}


def main() -> None:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(prog="hack.reference", description="Generates pages of docs/reference.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page differs")
    check = parser.parse_args().check
    stale = []
    for name, text in build_pages().items():
        path = FOLDER / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale and check:
        sys.exit(f"differ from the types: {', '.join(sorted(stale))}; run `make generate`")


if __name__ == "__main__":
    main()
