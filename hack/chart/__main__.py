"""Writes what is generated for the chart: its values, their schema, its README, and docs/reference/rbac.md.

python hack/chart           writes the files
python hack/chart --check   writes nothing and exits with 1 where a file differs
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import documents
import rbac

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "mcp-exec"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a file differs")
    check = parser.parse_args().check
    files: dict[Path, Callable[[], str]] = {
        CHART / "values.yaml": documents.values_yaml,
        CHART / "values.schema.json": documents.schema_json,
        CHART / "README.md": documents.readme,
        CHART / "files" / "pool-defaults.json": documents.pool_defaults,
        ROOT / "docs" / "reference" / "rbac.md": lambda: rbac.page(CHART),
    }
    stale = []
    for path, text in files.items():
        if path.exists() and path.read_text() == text():
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not check:
            path.write_text(text())
    if stale and check:
        sys.exit(f"differ from hack/chart and the templates: {', '.join(stale)}; run `make generate`")


if __name__ == "__main__":
    main()
