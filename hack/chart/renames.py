"""Values that had another name in an earlier release. The chart accepts the former name for one minor version.

Templates read such a value by the helper `mcp-exec.value`, and the notes name what is set by its former name. Remove an
entry, and read `.Values` again, in the release that `until` names.
"""

import json
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any, Final

from mcp_exec_api.meta import Model

Schema = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rename:
    """A value with a former name."""

    old: str
    """Path of the former name, with dots."""
    new: str
    """Path of the present one."""
    until: str
    """Release that refuses the former name."""


RENAMES: Final = (Rename(old="operator.sweepSeconds", new="operator.resyncSeconds", until="0.3.0"),)


def build_file(defaults: Model) -> str:
    """Return the renames and defaults as the templates read them."""
    values = defaults.model_dump(by_alias=True, mode="json")
    found = [
        asdict(each) | {"default": reduce(lambda place, name: place[name], each.new.split("."), values)}
        for each in RENAMES
    ]
    return json.dumps({"renames": found}, indent=2) + "\n"


def accept_former_names(schema: Schema) -> None:
    """Add the former names to the schema of all values."""
    for each in RENAMES:
        parent, _, name = each.old.rpartition(".")
        target, _, present = each.new.rpartition(".")
        about = f"Deprecated: it is {each.new} now, and refused from {each.until} on."
        _find(schema, parent)[name] = _find(schema, target)[present] | {"description": about}


def _find(schema: Schema, path: str) -> Schema:
    """Return the properties at a path."""
    found: Schema = schema["properties"]
    for name in path.split(".") if path else ():
        found = found[name]["properties"]
    return found


def build_table() -> str:
    """Return a Markdown table of the renames."""
    rows = ["| Former value | Value | Refused from |", "|---|---|---|"]
    rows += [f"| `{each.old}` | `{each.new}` | {each.until} |" for each in RENAMES]
    return "\n".join(rows)
