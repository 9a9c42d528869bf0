"""Settings of a sandbox, read from the variables `MCP_EXEC_*` that the operator sets in the pod's environment."""

import ipaddress
import json
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_exec_sandbox.protocol import LANGUAGES, Language

PREFIX = "MCP_EXEC_"
MIB = 1024 * 1024
MAX_MODULES = 32
MAX_MODULE_CHARACTERS = 100
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
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
        "LOG_OUTPUT",
        "PREIMPORT",
        "FORBIDDEN_ADDRESSES",
        "ANSWERING_ADDRESS",
        "LANGUAGE",
    }
)


class SandboxSettingsError(Exception):
    """A setting is missing, unknown or out of bounds. The text names the variable."""


@dataclass(frozen=True, kw_only=True)
class NetworkAddress:
    """IP address and TCP port."""

    host: str
    port: int

    @property
    def is_ipv6(self) -> bool:
        """Whether it is an address of IPv6."""
        return ":" in self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one sandbox. Sizes are in bytes, times in seconds."""

    token_sha256: str
    """SHA-256 (hex) of the bearer token of the API. The pod's spec never holds the token itself."""

    port: int = 8700
    """TCP port to listen on. 0 lets the system choose one, which the log line `ready` reports."""

    host: str = ""
    """Address to listen on. Empty means all addresses."""

    memory_bytes: int = 512 * MIB
    """Memory limit of the container."""

    max_processes: int = 64
    """Maximum number of processes and threads of the code, its interpreter included."""

    storage_bytes: int = 256 * MIB
    """Maximum size of the files in `workspace` and `temporary` together."""

    workspace: Path = Path("/workspace")
    """Working folder of the code, which can import modules from it."""

    temporary: Path = Path("/tmp")  # noqa: S108 - the pod's own emptyDir
    """The other writable folder."""

    forbidden_addresses: tuple[NetworkAddress, ...] = ()
    """Addresses that must not answer this pod. The sandbox becomes ready once they don't, and ends if one does later.
    None skips the check."""

    answering_address: NetworkAddress | None = None
    """Address that answers this pod if its network works. Without it, or if it is down, a connection to the sandbox
    shows that."""

    preimport: tuple[str, ...] = ()
    """Modules that the runner imports before the sandbox is ready."""

    language: Language = "python"
    """Language of the code."""

    log_output: bool = False
    """Whether the container's log has the output of the code, too."""

    grace_seconds: float = 0.7
    """Time between the interruption of the code and its kill."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the settings.

        Raises:
            SandboxSettingsError: a variable is missing, out of bounds, or unknown, which finds misspelt names.
        """
        texts = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX)}
        unknown = sorted(texts.keys() - _VARIABLES)
        if unknown:
            raise SandboxSettingsError(f"unknown setting {PREFIX}{unknown[0]}")
        digest = texts.get("TOKEN_SHA256", "")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise SandboxSettingsError(f"{PREFIX}TOKEN_SHA256 must be 64 lower-case hexadecimal digits")
        return cls(
            token_sha256=digest,
            port=_parse_integer(texts, "PORT", cls.port, 0, 65535),
            host=texts.get("HOST", cls.host),
            memory_bytes=_parse_integer(texts, "MEMORY_BYTES", cls.memory_bytes, 64 * MIB, 1 << 50),
            max_processes=_parse_integer(texts, "MAX_PROCESSES", cls.max_processes, 1, 1 << 20),
            storage_bytes=_parse_integer(texts, "STORAGE_BYTES", cls.storage_bytes, MIB, 1 << 50),
            workspace=_parse_folder(texts, "WORKSPACE", cls.workspace),
            temporary=_parse_folder(texts, "TMP", cls.temporary),
            forbidden_addresses=_parse_addresses(texts, "FORBIDDEN_ADDRESSES"),
            answering_address=next(iter(_parse_addresses(texts, "ANSWERING_ADDRESS")), None),
            preimport=_parse_modules(texts, "PREIMPORT"),
            language=_parse_language(texts, "LANGUAGE"),
            log_output=_parse_flag(texts, "LOG_OUTPUT"),
            grace_seconds=_parse_integer(texts, "GRACE_MILLISECONDS", round(cls.grace_seconds * 1000), 1, 10_000)
            / 1000,
        )


def _parse_integer(texts: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = texts.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
        raise SandboxSettingsError(f"{PREFIX}{name} must be an integer from {low} to {high}")
    return int(text)


def _parse_flag(texts: Mapping[str, str], name: str) -> bool:
    text = texts.get(name, "false")
    if text not in ("true", "false"):
        raise SandboxSettingsError(f"{PREFIX}{name} must be true or false")
    return text == "true"


def _parse_language(texts: Mapping[str, str], name: str) -> Language:
    text = texts.get(name, "python")
    for language in LANGUAGES:
        if text == language:
            return language
    raise SandboxSettingsError(f"{PREFIX}{name} must be one of {', '.join(LANGUAGES)}")


def _parse_modules(texts: Mapping[str, str], name: str) -> tuple[str, ...]:
    modules = tuple(text for text in texts.get(name, "").split(",") if text)
    if len(modules) > MAX_MODULES or any(
        len(module) > MAX_MODULE_CHARACTERS or not _MODULE.fullmatch(module) for module in modules
    ):
        raise SandboxSettingsError(
            f"{PREFIX}{name} must be at most {MAX_MODULES} names of modules, separated by commas, each of identifiers"
            f" with dots and at most {MAX_MODULE_CHARACTERS} characters"
        )
    return modules


def _parse_addresses(texts: Mapping[str, str], name: str) -> tuple[NetworkAddress, ...]:
    return tuple(_parse_address(text, name) for text in texts.get(name, "").split(",") if text)


def _parse_address(text: str, name: str) -> NetworkAddress:
    host, _, port = text.rpartition(":")
    try:
        # A name would never answer: a sandbox has no DNS.
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        if not re.fullmatch(r"[0-9]{1,5}", port):
            raise ValueError(port)
    except ValueError as error:
        raise SandboxSettingsError(f"{PREFIX}{name} must be IP:PORT, separated by commas") from error
    return NetworkAddress(host=str(address), port=int(port))


def _parse_folder(texts: Mapping[str, str], name: str, default: Path) -> Path:
    path = Path(texts.get(name, default))
    if not path.is_absolute():
        raise SandboxSettingsError(f"{PREFIX}{name} must be an absolute path")
    return path


def log(message: str, **fields: object) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps({"message": message, **fields}) + "\n")
    sys.stdout.flush()


def log_failure(message: str, error: BaseException) -> None:
    """Write a line about an unexpected error: its type and place, without its text, which may quote code's data."""
    places = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]
    log(message, error=type(error).__name__, at=places)
