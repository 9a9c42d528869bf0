"""Generate docs/reference/values.md from the table of values.

python -m hack.python_values           writes the page
python -m hack.python_values --check   writes nothing and exits with 1 if the page differs
"""

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Final

from hack.cpython.known import DIFFERENCES, Difference
from hack.python_values.table import GROUPS, ValueGroup, ValueRow

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "values.md"
_TAIL: Final = """
## Differences from an interpreter of its own

Code runs as in a process of its own: `make cpython` runs CPython's own tests inside runs and in child processes of
runs, and compares them. These differences are meant:

"""
_HEAD: Final = """<!-- Generated from hack/python_values by `make generate`. Do not edit. -->
# Values: what results and arguments become

Results of code and arguments of tools travel as JSON. The tables show what each Python value becomes. The tests of the
sandbox evaluate each row.

- **Nothing is changed silently.** If the JSON does not mean the same as the value, the run has a note of the kind in
  the column, with the path of the value, for example `result.rows[3].price`. Changes of the same sort are one note with
  their number. Notes are in `status.notes`, in HTTP responses, in MCP results, in `notes` of the Python client and on
  standard error of the command line.
- **An argument of a tool is never changed.** It has the form of a result if that form means the same. Otherwise the
  call fails with `InvalidArguments` before anything is sent, and the error names the path and what to pass instead:
  `rows[3].price is NaN, which JSON does not have: pass None, or leave it out`.
- **A result that is too long is cut with a note.** A text keeps its beginning and its end, cut between characters. Any
  other value becomes a text with the beginning of its JSON. `limits.outputBytes` sets the limit.
- **`context` is stored exactly or refused.** NaN, infinities and integers of more than 64 bits are refused with their
  path, repeated keys with the key.
- **Results of tools** are Python's `json` of what the server sent: integers are exact in any size, other numbers are
  doubles. A text that is no strict JSON, because it has NaN or a key twice, stays a text.

The API server, HTTP, MCP and the client pass on the JSON of the result without a change. Records have none of it. A
sandbox that sends an integer of more than 64 bits nevertheless has it replaced by its digits, with a note.
"""


def build_page() -> str:
    """Return the page."""
    return _HEAD + "".join(map(_build_section, GROUPS)) + _TAIL + "".join(map(_build_item, DIFFERENCES))


def _build_section(group: ValueGroup) -> str:
    head = f"\n## {group.title}\n\n{group.text}\n\n| Python | result | note | argument |\n|---|---|---|---|\n"
    return head + "".join(map(_build_line, group.rows))


def _build_item(difference: Difference) -> str:
    return textwrap.fill(f"- {difference.reason}", 120, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _build_line(row: ValueRow) -> str:
    argument = f"refused: {row.refused}" if row.refused else f"`{row.argument}`" if row.argument else "the same"
    note = f"`{row.note}`" if row.note else ""
    cells = (f"`{row.python}`", f"`{row.shown or row.result}`", note, argument)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the page differs")
    check = parser.parse_args().check
    page = build_page()
    if PAGE.exists() and PAGE.read_text() == page:
        return
    if check:
        sys.exit("docs/reference/values.md differs from hack/python_values; run `make generate`")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
