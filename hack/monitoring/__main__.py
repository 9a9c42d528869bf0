"""Generate the boards and the rules of the chart.

python -m hack.monitoring           writes the files
python -m hack.monitoring --check   writes nothing and exits with 1 if a file differs
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from hack.monitoring.adoption_board import ADOPTION
from hack.monitoring.alerts import ALERTS
from hack.monitoring.grafana import build_board
from hack.monitoring.recordings import RECORDINGS
from hack.monitoring.rollouts_board import ROLLOUTS
from hack.monitoring.rules import build_rules
from hack.monitoring.service_board import SERVICE
from hack.monitoring.tools_board import TOOLS

CHART: Final = Path(__file__).parents[2] / "charts" / "mcp-exec"
BOARDS: Final = (ADOPTION, SERVICE, TOOLS, ROLLOUTS)


def list_files() -> dict[Path, str]:
    """Return the content of each generated file."""
    boards = {CHART / "dashboards" / f"{board.name}.json": build_board(board) for board in BOARDS}
    return boards | {CHART / "rules" / "mcp-exec.yaml": build_rules(RECORDINGS, ALERTS)}


def main() -> None:
    """Write or check the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file differs")
    check = parser.parse_args().check
    stale = [path for path, text in list_files().items() if not path.exists() or path.read_text() != text]
    names = ", ".join(path.name for path in stale)
    if stale and check:
        sys.exit(f"differ from hack/monitoring: {names}; run `make generate`")
    for path in stale:
        path.write_text(list_files()[path])


if __name__ == "__main__":
    main()
