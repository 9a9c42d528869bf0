"""Writes what is generated from the types: `crds/*.yaml` and the chart's copies of them.

python -m mcp_exec_api.__main__           writes the files
python -m mcp_exec_api.__main__ --check   writes nothing and exits with 1 where a file differs
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from mcp_exec_api.constants import GROUP
from mcp_exec_api.crd_schema import build_definitions

_HEADER: Final = "# Generated from crds/mcp_exec_api by `make generate`. Do not edit.\n"

ANNOTATION_DIGEST: Final = f"{GROUP}/digest"
"""The digest of a definition's spec, as an annotation of the definition."""


def digest(crd: dict[str, Any]) -> str:
    """What tells this definition from that of another version: the chart upgrades a stored one by it."""
    return "sha256:" + hashlib.sha256(json.dumps(crd["spec"], sort_keys=True).encode()).hexdigest()


def crd_yaml(crd: dict[str, Any]) -> str:
    """A CRD as a file, with its digest. Kubernetes before 1.25 ignores the CEL rules in it."""
    metadata = crd["metadata"] | {"annotations": {ANNOTATION_DIGEST: digest(crd)}}
    return _HEADER + yaml.safe_dump(crd | {"metadata": metadata}, sort_keys=False, width=1000)


def files() -> dict[str, str]:
    """Every generated file: its path from the project's root, and its text."""
    found = {}
    for plural, crd in build_definitions().items():
        found[f"crds/{GROUP}_{plural}.yaml"] = crd_yaml(crd)
        found[f"charts/mcp-exec/crds/{plural}.yaml"] = crd_yaml(crd)
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a file differs")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the project's root")
    arguments = parser.parse_args()
    stale = []
    for name, text in files().items():
        path = arguments.root / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale and arguments.check:
        sys.exit(f"differ from the types: {', '.join(stale)}; run `make generate`")


if __name__ == "__main__":
    main()
