"""Sessions: variables, imports and files that stay from one execution to the next."""

import argparse
from typing import Final

from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.options import (
    Subcommands,
    add_command,
    add_connection_options,
    add_group,
    add_output_option,
    set_completer,
)
from mcp_exec_client.cli.output import FORMATS, SESSIONS, print_line, print_object, print_objects

_LIST: Final = """Lists sessions: at a gateway the caller's own, at an API server those of the namespace.

An execution that names a session creates it: `mcp-exec run --session analysis -c 'a = 1'`.

examples:
  mcp-exec sessions list
  mcp-exec sessions list -o json
"""
_GET: Final = """Shows one session.

example:
  mcp-exec sessions get analysis -o yaml
"""
_RESET: Final = """Lets sessions start afresh, with no variable and no file. An execution that runs is cancelled.

example:
  mcp-exec sessions reset analysis
"""
_DELETE: Final = """Ends sessions and deletes them. An execution that runs is cancelled.

example:
  mcp-exec sessions delete analysis
"""


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "sessions", summary="list, reset and delete sessions")
    listing = add_command(group, "list", summary="list sessions", description=_LIST, run=_list)
    add_output_option(listing, *FORMATS)
    get = add_command(group, "get", summary="show a session", description=_GET, run=_get)
    set_completer(get.add_argument("name", metavar="NAME", help="name of the session"), "session")
    add_output_option(get, *FORMATS)
    reset = add_command(group, "reset", summary="let sessions start afresh", description=_RESET, run=_reset)
    delete = add_command(group, "delete", summary="end sessions", description=_DELETE, run=_delete)
    for command in (reset, delete):
        set_completer(command.add_argument("names", metavar="NAME", nargs="+", help="name of a session"), "session")
    for command in (listing, get, reset, delete):
        command.add_argument("--user", metavar="USER", help="user whose sessions are meant")
        add_connection_options(command)


async def _list(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.follower import describe_nothing

    async with open_backend(options) as backend:
        items = await backend.list_sessions(user=options.user)
        empty = "" if items else await describe_nothing(backend, "sessions")
    print_objects(items, form=options.output, columns=SESSIONS, empty=empty)


async def _get(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        session = await backend.get_session(options.name, user=options.user)
    print_object(session, form=options.output, columns=SESSIONS)


async def _reset(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        for name in options.names:
            await backend.reset_session(name, user=options.user)
            print_line(f"{name} starts afresh")


async def _delete(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        for name in options.names:
            await backend.delete_session(name, user=options.user)
            print_line(f"{name} is deleted")
