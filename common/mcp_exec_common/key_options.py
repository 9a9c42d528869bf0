"""Options of the commands that create an API key."""

import argparse
from datetime import timedelta
from typing import Final

from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS

_PRIORITIES: Final = EXECUTION_OPTIONS["priority"].choices
_MAX_DAYS: Final = 36_500


def parse_days(text: str) -> timedelta:
    """Return a number of days. Raises ValueError if it is not between 1 and 36,500."""
    if not 1 <= (days := int(text)) <= _MAX_DAYS:
        raise ValueError
    return timedelta(days=days)


def add_key_options(parser: argparse.ArgumentParser, *, namespace: str = "--namespace") -> None:
    """Add the options to the parser of a command. `namespace` is the option for the key's namespace."""
    add = parser.add_argument
    add(namespace, dest="namespace", required=True, help="namespace that the key is limited to")
    add("--description", metavar="TEXT", help="what the key is for")
    add("--max-concurrent", type=int, metavar="N", help="maximum number of unfinished executions")
    add("--max-stored", type=int, metavar="N", help="maximum number of stored executions, with finished ones")
    add("--max-stored-bytes", type=int, metavar="N", help="maximum bytes of stored executions")
    add("--requests-per-minute", type=int, metavar="N", help="maximum rate of requests to each gateway replica")
    add("--direct-calls-per-minute", type=int, metavar="N", help="maximum rate of tool calls without an execution")
    add("--max-waits", type=int, metavar="N", help="maximum number of waiting requests at each gateway replica")
    add("--max-streams", type=int, metavar="N", help="maximum number of open event streams at each gateway replica")
    add("--max-sessions", type=int, metavar="N", help="maximum number of sessions that are kept at the same time")
    add("--max-workspaces", type=int, metavar="N", help="maximum number of workspaces")
    add("--max-timeout-seconds", type=int, metavar="N", help="maximum timeoutSeconds")
    add("--pool", action="append", dest="pools", metavar="POOL", help="pool that the key may use; repeatable")
    add("--max-priority", choices=_PRIORITIES, help="highest priority")
    add("--tool", action="append", dest="tools", metavar="PATTERN", help="tools that the key may use; repeatable")
    add("--user", action="append", dest="users", metavar="PATTERN", help="users that the key may name; repeatable")
    add(
        "--own",
        action=argparse.BooleanOptionalAction,
        help="limit the key to executions of its own: the default with --user",
    )
    add("--approver", action="store_true", help="allow the key to decide on approvals")
    add("--valid-days", type=parse_days, metavar="N", help="days after which the key expires (default: never)")
