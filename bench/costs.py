"""What a run costs: processor and memory of warm pods, executions and sessions, by runtime, and in cents.

It measures nothing, and needs no cluster: it computes with the results that density, containers and sustained left, or
with the recorded figures of docs/internals/performance.md, which has the method.

    make bench ONLY=density,containers,sustained
    python bench/costs.py --core-hour 0.03 --gib-hour 0.004
    python bench/costs.py --core-hour 0.03 --gib-hour 0.004 --recorded
"""

import argparse
import json
import math
from pathlib import Path

from figures import Rows
from harness import parser, table, write_json
from page import load_figures
from run_costs import PUBLISHED, RUNS, add_cents, read_costs
from suite import RESULTS

MAX_PRICE = 1_000_000


class MissingFigures(Exception):
    """A result of another benchmark is missing, or lacks a figure. The text says which, and what to do."""


def read_price(text: str) -> float:
    """Return the price of an hour. Raises ArgumentTypeError."""
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 < price <= MAX_PRICE:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is no price; allowed: more than 0, at most {MAX_PRICE:,}")
    return price


def load_use(folder: Path) -> Rows:
    """Return the rows of the results in a folder. Raises MissingFigures."""
    results = {}
    for name in RUNS:
        path = folder / f"{name}.json"
        try:
            results[name] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise MissingFigures(
                f"{path} cannot be read ({error}): run make bench ONLY={','.join(RUNS)}, or give --recorded"
            ) from error
    try:
        return read_costs(results)
    except KeyError as error:
        raise MissingFigures(
            f"the results in {folder} have no {error}: density needs the pools runc and default, containers both "
            "runtimes and uses, sustained all modes"
        ) from error


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    found = parser(__doc__)
    found.add_argument("--core-hour", type=read_price, required=True, metavar="PRICE", help="price of a core's hour")
    found.add_argument("--gib-hour", type=read_price, required=True, metavar="PRICE", help="price of a GiB's hour")
    source = found.add_mutually_exclusive_group()
    source.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="results of make bench")
    source.add_argument("--recorded", action="store_true", help="use the page's figures instead of results")
    return found.parse_args()


def main() -> None:
    """Run the command. Exits with a message if a result is missing."""
    options = parse_arguments()
    try:
        use = load_figures()["tables"]["costs"]["rows"] if options.recorded else load_use(options.results)
    except MissingFigures as error:
        raise SystemExit(str(error)) from error
    rows = add_cents(use, core_hour=options.core_hour, gib_hour=options.gib_hour)
    print(table(rows | PUBLISHED))
    write_json(options.json, {"coreHour": options.core_hour, "gibHour": options.gib_hour, "rows": rows})


if __name__ == "__main__":
    main()
