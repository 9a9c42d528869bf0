"""Attempts of code to reach a network, which no sandbox has: their errors read as if they could pass.

The functions of `socket` that nearly every library uses take note of what they were asked for, also if the code catches
their errors. Loopback, addresses of the sandbox itself and the broker are no network.
"""

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from mcp_exec_sandbox.protocol import Notes
from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_tools.source.installers import NETWORK_SENTENCE, find_network_program
from mcp_exec_tools.text import shorten_line

_MAX_KEPT = 1000
_MAX_NAMED = 3
_NAME_CHARACTERS = 40
_REMOTE_ACTIONS = frozenset({"clone", "fetch", "ls-remote", "pull", "push", "submodule"})
"""Commands of git that need a network."""
_hosts: dict[str, None] = {}
_programs: dict[str, bool] = {}
"""Programs that were called, and whether the sandbox has them."""
_broker: list[tuple[str, int]] = []


def watch_network() -> None:
    """Take note of attempts from now on."""
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        setattr(socket, name, _watch_name(getattr(socket, name)))
    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, _watch_address(getattr(socket.socket, name), is_sent=name == "sendto"))


def forget_attempts(broker: Sequence[tuple[str, int]]) -> None:
    """Begin a job, whose tools are called at these addresses."""
    _hosts.clear()
    _programs.clear()
    _broker[:] = broker


def add_program(command: str) -> None:
    """Take note of a command line that needs a network."""
    found = find_network_program(command)
    if found is None or len(_programs) >= _MAX_KEPT:
        return
    program, words = found
    # Imported for such a command, not in every idle sandbox.
    import shutil

    is_there = shutil.which(program) is not None
    if not is_there or os.path.basename(program) != "git" or _REMOTE_ACTIONS.intersection(words):
        _programs[os.path.basename(program)] = is_there


def write_attempts(notes: Notes, *, known: str) -> None:
    """Add the notes of the job, without those that the text of its error has."""
    texts = [*map(_describe_program, _programs), *_describe_hosts()]
    for text in texts:
        if text not in known:
            notes.add("NoNetwork", text)


def find_attempts(errors: Sequence[BaseException]) -> list[str]:
    """Return the attempts that have caused an error, as sentences. `errors` are the error and its causes."""
    commands = [_read_command(each) for each in errors]
    programs = [program for program in _programs if any(program in command for command in commands)]
    hosts = _describe_hosts() if any(map(_is_of_network, errors)) else []
    return [*map(_describe_program, programs), *hosts]


def _describe_program(program: str) -> str:
    what = f"{program} reaches nothing: " if _programs[program] else f"There is no program {program}, and "
    return f"{what}{NETWORK_SENTENCE}."


def _describe_hosts() -> list[str]:
    if not _hosts:
        return []
    named = ", ".join(shorten_line(host, _NAME_CHARACTERS) for host in list(_hosts)[:_MAX_NAMED])
    more = f" and {len(_hosts) - _MAX_NAMED} more" if len(_hosts) > _MAX_NAMED else ""
    return [f"{named}{more} can't be reached: {NETWORK_SENTENCE}."]


def _is_of_network(error: BaseException) -> bool:
    """Return whether an error is that of a socket: others of the system have the name of a file."""
    is_of_tool = isinstance(error, ToolError)
    return isinstance(error, OSError) and not is_of_tool and not isinstance(error.filename, (str, bytes))


def _read_command(error: BaseException) -> str:
    """Return the command of an error of `subprocess`, or an empty text."""
    is_missing = isinstance(error, FileNotFoundError)
    command = error.filename if is_missing else getattr(error, "cmd", "")  # type: ignore[attr-defined]
    words = command if isinstance(command, (list, tuple)) else [command]
    return " ".join(str(word) for word in words[:_MAX_NAMED])


def _watch_name(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def resolve(host: Any, *values: Any, **options: Any) -> Any:
        try:
            return original(host, *values, **options)
        except socket.gaierror:
            _add_host(host)
            raise

    return resolve


def _watch_address(original: Callable[..., Any], *, is_sent: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def reach(self: socket.socket, *values: Any) -> Any:
        try:
            answer = original(self, *values)
        except OSError:
            _add_address(self, values)
            raise
        if is_sent or answer:  # a datagram is lost without an error; `connect_ex` returns the number of its error
            _add_address(self, values)
        return answer

    return reach


def _add_address(used: socket.socket, values: Sequence[Any]) -> None:
    with contextlib.suppress(Exception):
        address = values[-1]
        is_internet = used.family in (socket.AF_INET, socket.AF_INET6)
        if is_internet and tuple(address[:2]) not in _broker and not _is_local(used.family, address[0]):
            _add_host(address[0])


def _is_local(family: int, host: str) -> bool:
    """Return whether a host is the sandbox itself. A name that is no address has failed to resolve."""
    try:
        socket.inet_pton(family, host.partition("%")[0])
    except OSError:
        return host in ("", "localhost")
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return True
    return False


def _add_host(host: object) -> None:
    if len(_hosts) < _MAX_KEPT and host:
        _hosts[host.decode("utf-8", "replace") if isinstance(host, bytes) else str(host)] = None
