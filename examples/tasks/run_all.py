"""Run all tasks of this folder, and print what each saved. The exit code is the number of tasks that failed."""

import importlib
import sys
from pathlib import Path

from mcp_exec_client import McpExecError
from saving import Saving, run_task

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if "    run_task(task)\n" in path.read_text())


def main() -> int:
    sums: dict[str, Saving] = {}
    failed = []
    for name in NAMES:
        module = importlib.import_module(name)
        print(f"== {name}: {module.__doc__}")
        try:
            sums[name] = run_task(module.task)
        except McpExecError as error:
            failed.append(name)
            print(f"FAILED: {error}", file=sys.stderr)
    print(f"\n{'task':<32} {'calls':>5} {'bytes':>10} {'writes':>7} {'reads':>6} {'direct':>9} {'saved':>9}")
    for name, saving in sums.items():
        print(
            f"{name:<32} {saving.calls:>5} {saving.received:>10,} {saving.code_tokens:>7,} {saving.read_tokens:>6,} "
            f"{saving.direct_tokens:>9,} {saving.tokens:>9,}"
        )
    print(f"{len(sums)} tasks succeeded, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
