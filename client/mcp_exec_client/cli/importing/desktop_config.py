"""MCP servers in the configuration of a desktop client, such as Claude Desktop, Cursor and VS Code.

Values of variables and headers are credentials until somebody says otherwise: none is printed, the manifest refers to
a Secret.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import SplitResult, urlsplit

from mcp_exec_client.cli.exit_codes import CommandError, ExitCode

_PLACES: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",))
"""Keys of the servers in the files of clients: most of them, VS Code in its own file and in its settings, and Zed."""
_URLS: Final = ("url", "serverUrl", "httpUrl")
_IGNORED: Final = ("cwd", "envFile", "autoApprove", "alwaysAllow")
_VARIABLE: Final = re.compile(r"(?!MCP_EXEC_)[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_SCHEME: Final = re.compile(r"(Bearer|Basic|Token) +", re.IGNORECASE)
_DOWNLOADERS: Final = ("npx", "uvx", "bunx", "pipx", "uv", "npm", "pnpm", "yarn", "deno")
_CONTAINERS: Final = ("docker", "podman", "nerdctl")
_MAX_WORDS: Final = 64
_MAX_CREDENTIALS: Final = 32
_SHOWN: Final = 80
_OWN_HOSTS: Final = ("localhost", "host.docker.internal")


@dataclass(frozen=True, kw_only=True)
class ConfiguredHeader:
    """HTTP header whose value is a credential."""

    name: str
    prefix: str = ""
    """Text before the credential, such as `Bearer `."""


@dataclass(frozen=True, kw_only=True)
class ConfiguredServer:
    """One server of a configuration, without its credentials."""

    url: str | None = None
    headers: Sequence[ConfiguredHeader] = ()
    command: Sequence[str] = ()
    variables: Sequence[str] = ()
    ignored: Sequence[str] = field(default=())
    """Keys that a ToolServer has no field for."""

    @property
    def downloads(self) -> bool:
        """Whether the command downloads the server when it starts."""
        return bool(self.command) and _program(self.command) in _DOWNLOADERS


def find_servers(data: Any) -> Mapping[str, Any] | None:
    """Return the servers of a configuration by name, or None if the data is no configuration."""
    for place in _PLACES:
        found = data
        for key in place:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            return found
    return None


def choose_server(servers: Mapping[str, Any], name: str, *, path: Path) -> ConfiguredServer:
    """Return the server of this name, or the only one. Raises CommandError."""
    if name not in servers and len(servers) != 1:
        names = ", ".join(sorted(map(str, servers))[:20])[:1000]
        problem = f"is the configuration of {len(servers)} servers: {names}" if servers else "configures no server"
        raise CommandError(f"{path} {problem}; NAME must be one of them", ExitCode.USAGE)
    key = name if name in servers else next(iter(servers))
    return _parse(key[:_SHOWN], servers[key])


def _parse(name: str, item: Any) -> ConfiguredServer:
    if not isinstance(item, Mapping):
        _refuse(name, f"it is not an object but {type(item).__name__}")
    if isinstance(inner := item.get("command"), Mapping):  # of Zed
        item = {**item, **inner, "command": inner.get("path")}
    urls = [key for key in _URLS if item.get(key)]
    ignored = [key for key in _IGNORED if item.get(key)]
    if urls and item.get("command"):
        _refuse(name, f"it has {urls[0]} and command; one of them is expected")
    if urls:
        if item.get("type") == "sse" or item.get("transport") == "sse":
            _refuse(name, "its type is sse; a ToolServer uses streamable HTTP, whose address often ends with /mcp")
        url = _check_url(name, item[urls[0]])
        return ConfiguredServer(url=url, headers=_read_headers(name, item.get("headers")), ignored=ignored)
    if not item.get("command"):
        keys = ", ".join(sorted(map(str, item))[:10])[:200] or "nothing"
        _refuse(name, f"it has {keys}; expected is command with args and env, or url with headers")
    command = _read_command(name, item["command"], item.get("args"))
    return ConfiguredServer(command=command, variables=_read_variables(name, item.get("env")), ignored=ignored)


def _read_command(name: str, command: Any, arguments: Any) -> list[str]:
    words = [command, *(arguments if isinstance(arguments, list) else [] if arguments is None else [arguments])]
    if not all(isinstance(word, str) for word in words) or len(words) > _MAX_WORDS:
        _refuse(name, f"command must be a text, and args a list of at most {_MAX_WORDS - 1} texts")
    if _program(words) in _CONTAINERS:
        _refuse(
            name,
            f"it runs {_program(words)}; a ToolServer names image and command itself: write stdio.image and "
            "stdio.command, as docs/start/your-own-server.md shows",
        )
    return words


def _read_variables(name: str, variables: Any) -> list[str]:
    names = _read_names(name, "env", variables)
    for each in names:
        if not _VARIABLE.fullmatch(each):
            _refuse(name, f"env has {each[:_SHOWN]!r}, which is not the name of a variable")
    return names


def _read_headers(name: str, headers: Any) -> list[ConfiguredHeader]:
    found = []
    for each in _read_names(name, "headers", headers):
        if not _HEADER.fullmatch(each):
            _refuse(name, f"headers has {each[:_SHOWN]!r}, which is not the name of a header")
        scheme = _SCHEME.match(str(headers[each]))
        found.append(ConfiguredHeader(name=each, prefix=scheme[0] if scheme else ""))
    return found


def _read_names(name: str, key: str, value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, Mapping) or len(value) > _MAX_CREDENTIALS:
        _refuse(name, f"{key} must be an object with at most {_MAX_CREDENTIALS} texts")
    return list(value)


def _check_url(name: str, url: Any) -> str:
    text = url if isinstance(url, str) else ""
    if (parts := split_web_address(text)) is None:
        _refuse(name, "its url must be http://HOST[:PORT]/PATH, or https")
    if parts.username or parts.password or parts.query:
        _refuse(name, "its url has a password or a query, which may be a credential; a ToolServer sends it as a header")
    if _is_own_host(parts.hostname or ""):
        _refuse(name, f"its url is at {parts.hostname}, this computer; the broker needs an address in its network")
    return text


def split_web_address(text: str) -> SplitResult | None:
    """Return the parts of an address such as http://HOST[:PORT]/PATH, or None for any other text."""
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return None
    is_plain = len(text) <= 2048 and text.isascii() and text.isprintable() and " " not in text
    return parts if is_valid and is_plain else None


def _is_own_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _OWN_HOSTS or host.endswith(".localhost")


def _program(words: Sequence[str]) -> str:
    return re.split(r"[/\\]", words[0])[-1].lower().removesuffix(".exe").removesuffix(".cmd")


def _refuse(name: str, problem: str) -> NoReturn:
    raise CommandError(f"server {name} cannot be imported: {problem}", ExitCode.USAGE)
