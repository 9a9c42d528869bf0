"""Entry of the sandbox's user in `pwd` and `grp`: its id differs from pod to pod, so /etc/passwd has no line of it."""

import functools
import grp
import os
import pwd
from collections.abc import Callable, Mapping
from typing import Any

_SHELL = "/bin/sh"


def name_user(environment: Mapping[str, str]) -> None:
    """Make `pwd` and `grp` of this process know the user and the group, under the name in the environment.

    Entries of the system's files are found first. Programs that the code starts have only those files.
    """
    name = environment.get("USER") or "agent"
    home = environment.get("HOME") or "/"

    def build_user() -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", os.getuid(), os.getgid(), "", home, _SHELL))

    def build_group() -> grp.struct_group:
        return grp.struct_group((name, "x", os.getgid(), []))

    _extend(pwd, ("getpwuid", "getpwnam", "getpwall"), build_user)
    _extend(grp, ("getgrgid", "getgrnam", "getgrall"), build_group)


def _extend(module: Any, functions: tuple[str, str, str], build: Callable[[], Any]) -> None:
    """Let the functions that find an entry by id and by name, and the one that lists all, know another entry."""
    by_id, by_name, all_entries = (getattr(module, function) for function in functions)

    def extend_search(original: Callable[..., Any], place: int) -> Callable[..., Any]:
        @functools.wraps(original)
        def find(key: Any, /) -> Any:
            try:
                return original(key)
            except KeyError:
                entry = build()
                if entry[place] == key:
                    return entry
                raise

        return find

    @functools.wraps(all_entries)
    def list_all() -> list[Any]:
        entries, own = all_entries(), build()
        return entries if any(entry[2] == own[2] for entry in entries) else [*entries, own]

    for function, replacement in zip(
        functions, (extend_search(by_id, 2), extend_search(by_name, 0), list_all), strict=True
    ):
        setattr(module, function, replacement)
