"""Profile file: gateways with their keys, by name.

The file is `$XDG_CONFIG_HOME/mcp-exec/config.toml`, or `~/.config/mcp-exec/config.toml`:

    current = "dev"

    [profiles.dev]
    gateway = "https://gateway.example.com"
    api-key = "mcpx_..."
    namespace = "agents"
"""

import argparse
import getpass
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import Subcommands, add_command, add_group, add_output_option, set_completer
from mcp_exec_client.cli.output import FORMATS, TableColumn, print_line, print_objects

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_FIELDS: Final = {"gateway": "gateway", "api-key": "api_key", "namespace": "namespace"}
_MAX_BYTES: Final = 256 * 1024
_READABLE_BY_OTHERS: Final = 0o077
_SET: Final = """Adds a profile or changes it. The first profile becomes the current one.

Without --api-key, a new profile's key is read from the terminal, or else from standard input.

example:
  mcp-exec profile set dev --gateway https://gateway.example.com --namespace agents
"""
_COLUMNS: Final = (
    TableColumn(title="CURRENT", cell=lambda item: "*" if item["current"] else ""),
    TableColumn(title="NAME", cell=lambda item: item["name"]),
    TableColumn(title="GATEWAY", cell=lambda item: item["gateway"]),
    TableColumn(title="NAMESPACE", cell=lambda item: item["namespace"]),
    TableColumn(title="KEY", cell=lambda item: "yes" if item["hasKey"] else "no"),
)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Address of a gateway and how to use it. What is None is not set."""

    gateway: str | None = None
    api_key: str | None = field(default=None, repr=False)
    namespace: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProfileFile:
    """The profiles of a file, and which is used if none is named."""

    path: Path
    profiles: Mapping[str, Profile]
    current: str | None = None

    def select(self, name: str | None) -> Profile:
        """Return the profile of this name, or the current one; an empty one if there is none. Raises CommandError."""
        name = name or self.current
        if name is None:
            return Profile()
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise CommandError(f"there is no profile {name!r} in {self.path}; there are: {known}", ExitCode.USAGE)
        return self.profiles[name]

    def with_profile(self, name: str, changes: Profile) -> "ProfileFile":
        """Return the file with a profile added or changed. The first profile becomes the current one."""
        if not _NAME.fullmatch(name):
            message = f"{name[:80]!r} is not a profile name: use letters, digits, - and _, at most 63"
            raise CommandError(message, ExitCode.USAGE)
        given = {key: value for key, value in vars(changes).items() if value is not None}
        changed = replace(self.profiles.get(name, Profile()), **given)
        return replace(self, profiles={**self.profiles, name: changed}, current=self.current or name)

    def with_current(self, name: str) -> "ProfileFile":
        """Return the file with another current profile. Raises CommandError if it does not exist."""
        self.select(name)
        return replace(self, current=name)

    def write(self) -> None:
        """Write the file, readable for its owner only. Raises CommandError."""
        import tempfile

        lines = [f"current = {_quote(self.current)}\n"] if self.current else []
        for name, profile in self.profiles.items():
            values = [(key, getattr(profile, attribute)) for key, attribute in _FIELDS.items()]
            lines += [f"\n[profiles.{name}]\n", *(f"{key} = {_quote(value)}\n" for key, value in values if value)]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # a new file is readable for its owner only, and no reader sees half of it
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False, encoding="utf-8") as file:
                file.writelines(lines)
            os.replace(file.name, self.path)
        except OSError as error:
            raise CommandError(f"{self.path} can't be written: {error.strerror}") from error


def default_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the file is."""
    folder = environment.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "mcp-exec" / "config.toml"


def read_profiles(path: Path) -> ProfileFile:
    """Read the file; without one there are no profiles. Raises CommandError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return ProfileFile(path=path, profiles={})
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}", ExitCode.USAGE) from error
    if len(content) > _MAX_BYTES:
        raise CommandError(f"{path} has more than {_MAX_BYTES} bytes", ExitCode.USAGE)
    # Imported for a file, not for a command's help.
    import tomllib

    try:
        data = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not valid TOML: {error}", ExitCode.USAGE) from error
    found = _parse(path, data)
    if mode & _READABLE_BY_OTHERS and any(profile.api_key for profile in found.profiles.values()):
        raise CommandError(f"{path} has keys and others may read it: chmod 600 {path}", ExitCode.USAGE)
    return found


def _parse(path: Path, data: Mapping[str, Any]) -> ProfileFile:
    tables, current = data.get("profiles", {}), data.get("current")
    _check_names(path, data, {"current", "profiles"})
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise CommandError(f"{path}: `profiles` must be a table and `current` a string", ExitCode.USAGE)
    profiles = {}
    for name, table in tables.items():
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise CommandError(f"{path}: profile {name!r} must have strings only", ExitCode.USAGE)
        _check_names(path, table, set(_FIELDS))
        profiles[name] = Profile(**{_FIELDS[key]: value for key, value in table.items()})
    return ProfileFile(path=path, profiles=profiles, current=current)


def _check_names(path: Path, table: Mapping[str, Any], allowed: set[str]) -> None:
    if unknown := sorted(set(table) - allowed):
        message = f"{path}: {unknown[0]!r} is unknown; allowed are {', '.join(sorted(allowed))}"
        raise CommandError(message, ExitCode.USAGE)


def _quote(text: str | None) -> str:
    if not text or not text.isprintable():
        raise CommandError("a value of a profile must be printable text", ExitCode.USAGE)
    return json.dumps(text, ensure_ascii=False)  # printable text has the same form in TOML


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "profile", summary="gateways with their keys, by name")
    change = add_command(group, "set", summary="add or change a profile", description=_SET)
    set_completer(change.add_argument("name", metavar="NAME", help="name of the profile"), "profile")
    change.add_argument("--gateway", metavar="URL", help="address of the gateway")
    change.add_argument("--api-key", metavar="KEY", help="key of the gateway; others can read it in the process list")
    change.add_argument("-n", "--namespace", metavar="NAME", help="namespace of executions; default: the key's own")
    change.set_defaults(run=_set)
    use = add_command(group, "use", summary="choose the current profile", description="Chooses the current profile.")
    set_completer(use.add_argument("name", metavar="NAME", help="name of the profile"), "profile")
    use.set_defaults(run=_use)
    listing = add_command(group, "list", summary="list profiles", description="Lists profiles, without their keys.")
    add_output_option(listing, *FORMATS)
    listing.set_defaults(run=_list)


def _set(options: argparse.Namespace) -> None:
    file = _read()
    is_new = options.name not in file.profiles
    if is_new and not options.gateway:
        raise CommandError(f"a new profile {options.name} needs --gateway", ExitCode.USAGE)
    if options.gateway and not options.gateway.startswith(("http://", "https://")):
        raise CommandError(f"--gateway {options.gateway} must begin with http:// or https://", ExitCode.USAGE)
    key = options.api_key or (_ask_key() if is_new else None)
    changes = Profile(gateway=options.gateway, api_key=key, namespace=options.namespace)
    file.with_profile(options.name, changes).write()
    print_line(f"{options.name} is in {file.path}")


def _use(options: argparse.Namespace) -> None:
    _read().with_current(options.name).write()
    print_line(f"{options.name} is the current profile")


def _list(options: argparse.Namespace) -> None:
    file = _read()
    items = [
        {
            "name": name,
            "gateway": profile.gateway,
            "namespace": profile.namespace,
            "hasKey": profile.api_key is not None,
            "current": name == file.current,
        }
        for name, profile in file.profiles.items()
    ]
    empty = "no profiles: `profile set` adds one"
    print_objects(items, form=options.output, columns=_COLUMNS, empty=empty)


def _read() -> ProfileFile:
    return read_profiles(default_path())


def _ask_key() -> str | None:
    key = getpass.getpass("API key: ") if sys.stdin.isatty() else sys.stdin.readline(1000)
    return key.strip() or None
