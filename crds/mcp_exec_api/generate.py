"""Writes what is generated from the types: `crds/*.yaml` and the chart's CRD templates.

python -m mcp_exec_api.generate           writes the files
python -m mcp_exec_api.generate --check   writes nothing and exits with 1 where a file differs
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from mcp_exec_api.crd import definitions
from mcp_exec_api.names import GROUP

_HEADER: Final = "# Generated from crds/mcp_exec_api by `make generate`. Do not edit.\n"
_RULES: Final = "x-kubernetes-validations:"


def crd_yaml(crd: dict[str, Any]) -> str:
    """A CRD as it stands in `crds/`."""
    return _HEADER + yaml.safe_dump(crd, sort_keys=False, width=1000)


def chart_template(crd: dict[str, Any]) -> str:
    """A CRD as a template of the chart: optional, kept on uninstall, without CEL rules before Kubernetes 1.25."""
    lines = yaml.safe_dump(crd, sort_keys=False, width=1000).splitlines()
    name = lines.index("metadata:") + 1
    annotations = [
        "  {{- if .Values.crds.keep }}",
        "  annotations:",
        "    helm.sh/resource-policy: keep",
        "  {{- end }}",
    ]
    body = [*lines[: name + 1], *annotations, *lines[name + 1 :]]
    return "\n".join([_HEADER + "{{- if .Values.crds.enabled }}", *_conditional_rules(body), "{{- end }}", ""])


def _conditional_rules(lines: list[str]) -> list[str]:
    found: list[str] = []
    inside: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if inside is not None and (indent < inside or (indent == inside and not line.lstrip().startswith("- "))):
            found.append("{{- end }}")
            inside = None
        if line.strip() == _RULES:
            found.append('{{- if semverCompare ">=1.25-0" .Capabilities.KubeVersion.Version }}')
            inside = indent
        found.append(line)
    if inside is not None:
        found.append("{{- end }}")
    return found


def files() -> dict[str, str]:
    """Every generated file: its path from the project's root, and its text."""
    found = {}
    for plural, crd in definitions().items():
        found[f"crds/{GROUP}_{plural}.yaml"] = crd_yaml(crd)
        found[f"charts/mcp-exec/templates/crds/{plural}.yaml"] = chart_template(crd)
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
