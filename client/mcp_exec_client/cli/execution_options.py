"""Options of an execution as options of a command, made from their table."""

import argparse
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS, ExecutionOption
from mcp_exec_client.cli.options import Object, Target, add_number, add_repeated, pair, set_completer

_VERSIONED: Final = re.compile(r"(.+?)(?:-v|@)([1-9][0-9]{0,4})")


def add_option(command: Target, option: ExecutionOption) -> None:
    """Add an option of an execution to a command, or to a group that needs one of its options."""
    shown = option.help if not option.choices else f"{option.help}: {', '.join(option.choices)}"
    shown += f"; default: {option.default}" if option.default else ""
    settings: dict[str, Any] = {"dest": option.name, "metavar": option.metavar, "help": shown}
    if option.name in _SYNTAX:
        command.add_argument(option.flag, type=_SYNTAX[option.name], **settings)
    elif option.kind == "number":
        add_number(command, option.flag, option.lowest, option.highest, **settings)
    elif option.kind == "texts":
        add_repeated(command, option.flag, **settings)
    elif option.kind in _PAIRS:
        add_repeated(command, option.flag, type=_PAIRS[option.kind], **settings)
    else:
        action = command.add_argument(option.flag, choices=option.choices or None, **settings)
        if option.name in _COMPLETED:
            set_completer(action, option.name)


def add_named(command: Target, *names: str) -> None:
    """Add options of an execution by their names in the table."""
    for name in names:
        add_option(command, EXECUTION_OPTIONS[name])


def read_given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of an execution that a command was given, by their names."""
    given: dict[str, Any] = {}
    for option in EXECUTION_OPTIONS.values():
        value = getattr(options, option.name)
        if option.kind in _PAIRS and isinstance(value, list):
            value = dict(value)
        if value not in (None, "", [], {}):
            given[option.name] = value
    return given


def context_value(text: str) -> tuple[str, Any]:
    """Parse KEY=TEXT or KEY:=JSON."""
    name, value = pair(text)
    if not name.endswith(":"):
        return name, value
    try:
        return name[:-1], json.loads(value)
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError(f"{name}={value[:80]} must be KEY:=JSON") from None


def workspace_reference(text: str) -> Object:
    """Parse NAME, or NAME:ro for a copy whose changes are dropped."""
    name, separator, mode = text.partition(":")
    if not name or (separator and mode not in ("ro", "rw")):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} must be NAME, or NAME:ro to read only")
    return {"name": name, "mode": "Read" if mode == "ro" else "Write"}


def skill_reference(text: str) -> Object:
    """Parse NAME or NAME-vVERSION."""
    name, version = split_skill(text)
    if not name:
        raise argparse.ArgumentTypeError("'' must be NAME or NAME-vVERSION")
    return {"name": name} if version is None else {"name": name, "version": version}


def split_skill(text: str) -> tuple[str, int | None]:
    """Return name and version of a skill; the version is None if the text has none."""
    found = _VERSIONED.fullmatch(text)
    return (found[1], int(found[2])) if found else (text, None)


_SYNTAX: Final[Mapping[str, Callable[[str], Object]]] = {
    "workspace": workspace_reference,
    "skill_ref": skill_reference,
}
"""What reads the options that have more than one part."""
_PAIRS: Final[Mapping[str, Callable[[str], tuple[str, Any]]]] = {"pairs": pair, "object": context_value}
_COMPLETED: Final = ("session",)
"""Options whose values are names that completion can find."""
