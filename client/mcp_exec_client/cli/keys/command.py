"""API keys of a gateway: entries of the Secret in the release's namespace, with the rights of a kubeconfig."""

import argparse
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.connection import KUBECTL, find_kubeconfig, open_client
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    Object,
    Subcommands,
    add_client_options,
    add_command,
    add_group,
    add_kubeconfig_options,
    add_number,
    add_output_option,
)
from mcp_exec_client.cli.output import FORMATS, KEY_USES, KEYS, print_line, print_note, print_objects
from mcp_exec_common.key_options import add_key_options

if TYPE_CHECKING:
    from mcp_exec_client.cli.keys.secret import KeySecret
    from mcp_exec_common.api_keys import KeyEntry

_CREATE: Final = """Creates an API key and prints it once; the Secret stores its SHA-256 digest.

The key works when the gateway has read the Secret, usually within a second.

examples:
  kubectl mcp-exec keys create team-a --for-namespace agents --valid-days 90 --description 'nightly reports'
  mcp-exec keys create reviewers --for-namespace agents --approver --kubeconfig ~/.kube/config
"""
_LIST: Final = """Lists the API keys of the Secret, without digests.

example:
  kubectl mcp-exec keys list -o wide
"""
_REVOKE: Final = """Removes API keys. The gateway refuses them when it has read the Secret, usually within a second.

example:
  kubectl mcp-exec keys revoke team-a
"""
_ROTATE: Final = """Replaces an API key by a new one with the same name and limits, and prints it once.

The former key is accepted for the hours of grace. A key that expires gets as many days as it had.

example:
  kubectl mcp-exec keys rotate team-a --grace-hours 24
"""
_USES: Final = """Lists the hour of the last use of each API key of the namespace, from the records.

It asks the gateway, as a caller who may list executions of the namespace. A key that is missing was not used as long as
records are kept.

example:
  mcp-exec keys uses
"""
_MAX_GRACE_HOURS: Final = 24 * 90


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "keys", summary="create, list, rotate and revoke API keys of a gateway")
    create = add_command(group, "create", summary="create a key", description=_CREATE, run=_create)
    listing = add_command(group, "list", summary="list keys", description=_LIST, run=_list)
    rotate = add_command(group, "rotate", summary="replace a key", description=_ROTATE, run=_rotate)
    revoke = add_command(group, "revoke", summary="remove keys", description=_REVOKE, run=_revoke)
    for command in (create, rotate):
        command.add_argument("name", metavar="NAME", help="name of the key, which is that of its caller")
    uses = add_command(group, "uses", summary="list the last use of each key", description=_USES, run=_list_uses)
    add_output_option(uses, *FORMATS)
    add_client_options(uses)
    add_key_options(create, namespace="--for-namespace")
    add_number(
        rotate, "--grace-hours", 0, _MAX_GRACE_HOURS, default=24, help="hours during which the former key still works"
    )
    revoke.add_argument("names", metavar="NAME", nargs="+", help="name of a key")
    for command in (create, rotate):
        add_output_option(command, "text", "json")
    add_output_option(listing, *FORMATS)
    for command in (create, listing, rotate, revoke):
        command.add_argument(
            "--release-namespace",
            metavar="NAME",
            default="mcp-exec-system",
            help="namespace of the release; default: mcp-exec-system",
        )
        command.add_argument(
            "--secret",
            metavar="NAME",
            default="mcp-exec-api-keys",
            help="Secret with the keys; default: mcp-exec-api-keys",
        )
        add_kubeconfig_options(command)


@asynccontextmanager
async def _open(options: argparse.Namespace) -> AsyncIterator["KeySecret"]:
    from mcp_exec_client.cli.backends.cluster import ClusterBackend
    from mcp_exec_client.cli.keys.secret import KeySecret

    kubeconfig = options.kubeconfig or (find_kubeconfig() if options.program == KUBECTL else None)
    if kubeconfig is None:
        raise CommandError(f"keys needs --kubeconfig, or the plugin: {KUBECTL} keys", ExitCode.USAGE)
    async with ClusterBackend.connect(
        kubeconfig=kubeconfig, context=options.kube_context, namespace=options.release_namespace
    ) as cluster:
        yield await KeySecret.read(cluster.kube, namespace=cluster.namespace, name=options.secret)


async def _create(options: argparse.Namespace) -> None:
    from pydantic import ValidationError

    from mcp_exec_api.meta import explain_errors
    from mcp_exec_common.api_keys import build_entry, generate_key

    key = generate_key()
    try:
        entry = build_entry(options, key)
    except ValidationError as error:
        raise CommandError(explain_errors(error), ExitCode.USAGE) from None
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from None
    async with _open(options) as secret:
        if options.name in secret.data:
            raise CommandError(f"there is a key {options.name}: rotate or revoke it", ExitCode.REFUSED)
        await secret.write({options.name: entry})
    _print_key(options, key)


async def _rotate(options: argparse.Namespace) -> None:
    from mcp_exec_api.meta import now
    from mcp_exec_common.api_keys import FormerKey, digest_key, generate_key

    key, moment = generate_key(), now().replace(microsecond=0)
    async with _open(options) as secret:
        entry = secret.parse(options.name)
        ends = moment + timedelta(hours=options.grace_hours)
        former = FormerKey(sha256=entry.sha256, expires_at=min(filter(None, (ends, entry.expires_at))))
        changes: Object = {"sha256": digest_key(key), "created_at": moment, "former": former}
        if entry.expires_at is not None:
            if entry.created_at is None:
                message = f"the key {options.name} expires and has no time of creation: revoke it and create another"
                raise CommandError(message, ExitCode.REFUSED)
            changes["expires_at"] = moment + (entry.expires_at - entry.created_at)
        if options.grace_hours == 0:
            changes["former"] = None
        await secret.write({options.name: entry.model_copy(update=changes)})
    _print_key(options, key)


async def _revoke(options: argparse.Namespace) -> None:
    async with _open(options) as secret:
        if missing := [name for name in options.names if name not in secret.data]:
            raise CommandError(f"there is no key {', '.join(missing)} in the Secret", ExitCode.REFUSED)
        await secret.write(dict.fromkeys(options.names))
    for name in options.names:
        print_line(f"{name} is revoked")


async def _list(options: argparse.Namespace) -> None:
    items: list[Object] = []
    async with _open(options) as secret:
        for name in sorted(secret.data):
            try:
                items.append(_show(name, secret.parse(name)))
            except CommandError as error:
                print_note(str(error))
    print_objects(items, form=options.output, columns=KEYS, empty="there are no keys")


async def _list_uses(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        found = await client.key_uses()
    items = found.model_dump(mode="json", by_alias=True)["items"]
    print_objects(items, form=options.output, columns=KEY_USES, empty="no key was used")


def _show(name: str, entry: "KeyEntry") -> Object:
    shown = entry.to_api()
    former = shown.pop("former", None)
    del shown["sha256"]
    return {"name": name, **shown, **({"formerExpiresAt": former["expiresAt"]} if former else {})}


def _print_key(options: argparse.Namespace, key: str) -> None:
    if options.output == "json":
        print_line(json.dumps({"name": options.name, "key": key}))
        return
    print_line(key)
    print_note(f"this is the API key {options.name}; it is shown only once")
