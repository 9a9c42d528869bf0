"""Generate the chart's values, their schema and README, docs/reference and the tables of reasons and notes.

python -m hack.chart           writes the files
python -m hack.chart --check   writes nothing and exits with 1 if a file differs
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from hack.chart import documents, rbac, reasons, settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "mcp-exec"
CLUSTER_CHART = ROOT / "charts" / "mcp-exec-cluster"
TROUBLESHOOTING = ROOT / "docs" / "kubectl" / "troubleshooting.md"
EXECUTIONS = ROOT / "docs" / "kubectl" / "executions.md"
SESSIONS = ROOT / "docs" / "services" / "sessions.md"
TOOL_SERVERS = ROOT / "docs" / "platform" / "tool-servers.md"


def main() -> None:
    """Write or check the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file differs")
    check = parser.parse_args().check
    files: dict[Path, Callable[[], str]] = {
        CHART / "values.yaml": documents.build_values_yaml,
        CHART / "values.schema.json": documents.build_schema_json,
        CHART / "Chart.yaml": lambda: documents.update_chart(CHART / "Chart.yaml"),
        CLUSTER_CHART / "Chart.yaml": lambda: documents.update_chart(CLUSTER_CHART / "Chart.yaml"),
        CHART / "README.md": documents.build_readme,
        CHART / "files" / "defaults.json": documents.build_defaults,
        CHART / "files" / "rules.json": documents.build_rules,
        CHART / "files" / "variables.json": settings.build_variables,
        CHART / "files" / "pool-defaults.json": documents.build_pool_defaults,
        CHART / "files" / "kubernetes.json": documents.build_kubernetes,
        ROOT / "docs" / "reference" / "rbac.md": lambda: rbac.build_page(CHART),
        TROUBLESHOOTING: lambda: reasons.update_page(TROUBLESHOOTING),
        EXECUTIONS: lambda: reasons.update_notes_page(EXECUTIONS),
        SESSIONS: lambda: reasons.update_sessions_page(SESSIONS),
        TOOL_SERVERS: lambda: reasons.update_servers_page(TOOL_SERVERS),
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
