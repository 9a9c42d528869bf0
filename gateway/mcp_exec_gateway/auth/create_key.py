"""`python -m mcp_exec_gateway.auth.create_key NAME --namespace NAMESPACE`: create an API key and its Secret."""

import argparse
import json
import secrets
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.meta import field_errors
from mcp_exec_gateway.auth.api_keys import KEY_PREFIX, KeyEntry, KeyLimits, check_key_name, key_digest

_TEXT: Final = """\
The key of {name}, shown this once (only its SHA-256 is stored):

  {key}

It works from the moment on that this is done:

  kubectl --namespace {release} patch secret {secret} --type merge --patch {patch}

To revoke it:

  kubectl --namespace {release} patch secret {secret} --type merge --patch {revoke}
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m mcp_exec_gateway.auth.create_key", description="API keys of the gateway"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    create = commands.add_parser("create", help="make a key and print how to store its digest")
    create.add_argument("name", help="the key's name: in the callers' label, in logs")
    create.add_argument("--namespace", required=True, help="the namespace that it works in")
    create.add_argument("--max-concurrent", type=int, metavar="N", help="executions under way at once")
    create.add_argument("--requests-per-minute", type=int, metavar="N", help="requests to each replica of the gateway")
    create.add_argument("--max-timeout-seconds", type=int, metavar="N", help="the longest timeoutSeconds")
    create.add_argument("--pool", action="append", dest="pools", metavar="POOL", help="a pool it may use; repeatable")
    create.add_argument("--max-priority", choices=[each.value for each in Priority], help="the highest priority")
    create.add_argument("--tool", action="append", dest="tools", metavar="PATTERN", help="tools it may use; repeatable")
    create.add_argument("--user", action="append", dest="users", metavar="PATTERN", help="whom it may name; repeatable")
    create.add_argument("--approver", action="store_true", help="it may decide on tool calls that wait for consent")
    create.add_argument("--release-namespace", default="mcp-exec-system", help="where the Secret is (%(default)s)")
    create.add_argument("--secret", default="mcp-exec-api-keys", help="the Secret's name (%(default)s)")
    create.add_argument("--output", choices=["text", "json"], default="text", help="json: {name, key, patch}")
    return parser


def _entry(arguments: argparse.Namespace, key: str) -> KeyEntry:
    check_key_name(arguments.name)
    limits = KeyLimits(
        max_concurrent=arguments.max_concurrent,
        requests_per_minute=arguments.requests_per_minute,
        max_timeout_seconds=arguments.max_timeout_seconds,
        pools=arguments.pools,
        max_priority=arguments.max_priority,
        tools=arguments.tools,
        users=arguments.users,
    )
    digest, namespace = key_digest(key), arguments.namespace
    return KeyEntry(sha256=digest, namespace=namespace, limits=limits, approver=arguments.approver)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    try:
        entry = _entry(arguments, key)
    except ValidationError as error:
        parser.error("; ".join(f"{found.field}: {found.message}" for found in field_errors(error)))
    except ValueError as error:
        parser.error(str(error))
    # merge patches of stringData change one entry and leave the others as they are
    patch = json.dumps({"stringData": {arguments.name: json.dumps(entry.to_api(), separators=(",", ":"))}})
    if arguments.output == "json":
        made = json.dumps({"name": arguments.name, "key": key, "patch": json.loads(patch)}, indent=2) + "\n"
    else:
        made = _TEXT.format(
            name=arguments.name,
            key=key,
            release=arguments.release_namespace,
            secret=arguments.secret,
            patch=shlex.quote(patch),
            revoke=shlex.quote(json.dumps({"data": {arguments.name: None}})),
        )
    sys.stdout.write(made)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
