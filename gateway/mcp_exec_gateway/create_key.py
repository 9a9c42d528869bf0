"""`python3 -m mcp_exec_gateway.create_key NAME --namespace NAMESPACE`: create an API key.

The command prints the key and the kubectl command that stores its digest; it does not connect to the cluster.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.meta import explain_errors, now
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.api_keys import KeyEntry, digest_key, generate_key
from mcp_exec_gateway.core.auth.api_keys import check_key_name

_MAX_DAYS: Final = 36_500
_TEXT: Final = """\
The API key {name}. It is printed only once; the Secret stores its SHA-256 digest:

  {key}

To activate it, run:

  kubectl --namespace {release} patch secret {secret} --type merge --patch {patch}

To revoke it, run:

  kubectl --namespace {release} patch secret {secret} --type merge --patch {revoke}
"""


def _parse_days(text: str) -> timedelta:
    if not 1 <= (days := int(text)) <= _MAX_DAYS:
        raise ValueError
    return timedelta(days=days)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m mcp_exec_gateway.create_key",
        description="Create an API key of the gateway and print the command that stores its digest.",
    )
    add = parser.add_argument
    add("name", help="name of the key, used in logs and as the callers' label")
    add("--namespace", required=True, help="namespace that the key is limited to")
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
    add("--max-priority", choices=[priority.value for priority in Priority], help="highest priority")
    add("--tool", action="append", dest="tools", metavar="PATTERN", help="tools that the key may use; repeatable")
    add("--user", action="append", dest="users", metavar="PATTERN", help="users that the key may name; repeatable")
    add(
        "--own",
        action=argparse.BooleanOptionalAction,
        help="limit the key to executions of its own: the default with --user",
    )
    add("--approver", action="store_true", help="allow the key to decide on approvals")
    add("--valid-days", type=_parse_days, metavar="N", help="days after which the key expires (default: never)")
    add("--release-namespace", default="mcp-exec-system", help="namespace of the Secret (%(default)s)")
    add("--secret", default="mcp-exec-api-keys", help="name of the Secret (%(default)s)")
    add("--output", choices=["text", "json"], default="text", help="output format; json is {name, key, patch}")
    return parser


def _build_entry(arguments: argparse.Namespace, key: str) -> KeyEntry:
    check_key_name(arguments.name)
    limits = KeyLimits(
        max_concurrent=arguments.max_concurrent,
        max_stored=arguments.max_stored,
        max_stored_bytes=arguments.max_stored_bytes,
        requests_per_minute=arguments.requests_per_minute,
        direct_calls_per_minute=arguments.direct_calls_per_minute,
        max_waits=arguments.max_waits,
        max_streams=arguments.max_streams,
        max_sessions=arguments.max_sessions,
        max_workspaces=arguments.max_workspaces,
        max_timeout_seconds=arguments.max_timeout_seconds,
        pools=arguments.pools,
        max_priority=arguments.max_priority,
        tools=arguments.tools,
        users=arguments.users,
        own=arguments.own,
    )
    digest, namespace = digest_key(key), arguments.namespace
    expires_at = None if arguments.valid_days is None else now().replace(microsecond=0) + arguments.valid_days
    return KeyEntry(
        sha256=digest, namespace=namespace, limits=limits, approver=arguments.approver, expires_at=expires_at
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = _build_parser()
    arguments = parser.parse_args(argv)
    key = generate_key()
    try:
        entry = _build_entry(arguments, key)
    except ValidationError as error:
        parser.error(explain_errors(error))
    except ValueError as error:
        parser.error(str(error))
    # a merge patch of stringData changes this entry and keeps the others
    patch = json.dumps({"stringData": {arguments.name: json.dumps(entry.to_api(), separators=(",", ":"))}})
    if arguments.output == "json":
        text = json.dumps({"name": arguments.name, "key": key, "patch": json.loads(patch)}, indent=2) + "\n"
    else:
        text = _TEXT.format(
            name=arguments.name,
            key=key,
            release=arguments.release_namespace,
            secret=arguments.secret,
            patch=shlex.quote(patch),
            revoke=shlex.quote(json.dumps({"data": {arguments.name: None}})),
        )
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
