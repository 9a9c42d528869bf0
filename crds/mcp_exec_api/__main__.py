"""Generate the CustomResourceDefinitions from the types: `crds/*.yaml` and the chart's copies of them.

python -m mcp_exec_api           writes the files
python -m mcp_exec_api --check   writes nothing and exits with 1 if a file differs
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from mcp_exec_api.constants import ANNOTATION_RELEASE_VERSION, GROUP
from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_api.wire.version import RELEASE

_HEADER: Final = "# Generated from crds/mcp_exec_api by `make generate`. Do not edit.\n"


def format_crd(crd: dict[str, Any]) -> str:
    """Format a CRD as YAML, with the release that it belongs to. Kubernetes before 1.25 ignores its CEL rules."""
    metadata = crd["metadata"] | {"annotations": {ANNOTATION_RELEASE_VERSION: RELEASE}}
    return _HEADER + yaml.safe_dump(crd | {"metadata": metadata}, sort_keys=False, width=1000)


def build_files() -> dict[str, str]:
    """Build all generated files: text by path below the project's root."""
    files = {}
    for plural, crd in build_definitions().items():
        files[f"crds/{GROUP}_{plural}.yaml"] = files[f"charts/mcp-exec/crds/{plural}.yaml"] = format_crd(crd)
    return files


def main() -> None:
    """Write or check the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the project's root")
    arguments = parser.parse_args()
    stale = []
    for name, text in build_files().items():
        path = arguments.root / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale and arguments.check:
        sys.exit(f"these files are not up to date: {', '.join(stale)}; run `make generate`")


if __name__ == "__main__":
    main()
