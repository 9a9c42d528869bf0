"""The settings of a sandbox: one frozen object, read from `MCP_EXEC_*` in the environment that the operator sets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "MCP_EXEC_"
MIB = 1024 * 1024


class SettingsError(Exception):
    """A setting is missing, unknown or out of bounds; the text names the variable."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a sandbox is told when it starts. Sizes are in bytes, times in seconds."""

    token_sha256: str
    """SHA-256 (hex) of the bearer token that clients must show; the token itself is never in the pod's spec."""

    port: int = 8700
    """TCP port to listen on; 0 lets the system choose (the ready line tells which)."""

    host: str = ""
    """Address to listen on; empty means all."""

    memory_bytes: int = 512 * MIB
    """Memory limit of the container."""

    max_processes: int = 64
    """Processes and threads that the code may have at a time, its interpreter included."""

    storage_bytes: int = 256 * MIB
    """Bytes that the code may keep in `workspace` and `temporary` together."""

    workspace: Path = Path("/workspace")
    """Working folder of the code; modules in it can be imported."""

    temporary: Path = Path("/tmp")  # noqa: S108 - the pod's own emptyDir
    """The other writable folder."""

    forbidden_address: tuple[str, int] | None = None
    """Host and port that must not answer here: the sandbox is ready once they don't. None checks nothing."""

    grace_seconds: float = 0.7
    """Time that interrupted code gets to end by itself before it is killed."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the settings.

        Raises:
            SettingsError: a variable is missing, unknown (so that a typo never goes unnoticed) or out of bounds.
        """
        given = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX)}
        unknown = sorted(given.keys() - _VARIABLES)
        if unknown:
            raise SettingsError(f"unknown setting {PREFIX}{unknown[0]}")
        digest = given.get("TOKEN_SHA256", "")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise SettingsError(f"{PREFIX}TOKEN_SHA256 must be 64 lower-case hexadecimal digits")
        return cls(
            token_sha256=digest,
            port=_integer(given, "PORT", cls.port, 0, 65535),
            host=given.get("HOST", cls.host),
            memory_bytes=_integer(given, "MEMORY_BYTES", cls.memory_bytes, 64 * MIB, 1 << 50),
            max_processes=_integer(given, "MAX_PROCESSES", cls.max_processes, 1, 1 << 20),
            storage_bytes=_integer(given, "STORAGE_BYTES", cls.storage_bytes, MIB, 1 << 50),
            workspace=_folder(given, "WORKSPACE", cls.workspace),
            temporary=_folder(given, "TMP", cls.temporary),
            forbidden_address=_address(given, "FORBIDDEN_ADDRESS"),
            grace_seconds=_integer(given, "GRACE_MILLISECONDS", round(cls.grace_seconds * 1000), 1, 10_000) / 1000,
        )


_VARIABLES = frozenset(
    {
        "TOKEN_SHA256",
        "PORT",
        "HOST",
        "MEMORY_BYTES",
        "MAX_PROCESSES",
        "STORAGE_BYTES",
        "WORKSPACE",
        "TMP",
        "GRACE_MILLISECONDS",
        "FORBIDDEN_ADDRESS",
    }
)


def _integer(given: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
        raise SettingsError(f"{PREFIX}{name} must be an integer from {low} to {high}")
    return int(text)


def _address(given: Mapping[str, str], name: str) -> tuple[str, int] | None:
    text = given.get(name, "")
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port):
        raise SettingsError(f"{PREFIX}{name} must be HOST:PORT")
    return host.strip("[]"), int(port)


def _folder(given: Mapping[str, str], name: str, default: Path) -> Path:
    path = Path(given.get(name, default))
    if not path.is_absolute():
        raise SettingsError(f"{PREFIX}{name} must be an absolute path")
    return path
