"""Profile file: gateways with their keys, by name.

The file is `$XDG_CONFIG_HOME/mcp-exec/config.toml`, or `~/.config/mcp-exec/config.toml`:

    current = "dev"

    [profiles.dev]
    gateway = "https://gateway.example.com"
    api-key = "mcpx_..."
    namespace = "agents"
"""

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.options import CommandError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_FIELDS: Final = {"gateway": "gateway", "api-key": "api_key", "namespace": "namespace"}
_MAX_BYTES: Final = 256 * 1024
_READABLE_BY_OTHERS: Final = 0o077


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
