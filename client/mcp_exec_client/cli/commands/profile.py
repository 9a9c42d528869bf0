"""Profiles: gateways with their keys, by name, in ~/.config/mcp-exec/config.toml."""

import argparse
import getpass
import sys
from typing import Final

from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.options import (
    CommandError,
    Subcommands,
    add_command,
    add_group,
    add_output_option,
    set_completer,
)
from mcp_exec_client.cli.output import FORMATS, TableColumn, print_objects
from mcp_exec_client.cli.profiles import Profile, ProfileFile, default_path, read_profiles
from mcp_exec_client.cli.terminal import print_line

_SET: Final = """Adds a profile or changes it. The first profile becomes the current one.

Without --api-key, a new profile's key is read from the terminal, or else from standard input.

example:
  mcp-exec profile set dev --gateway https://gateway.example.com --namespace agents
"""
_COLUMNS: Final = (
    TableColumn(title="CURRENT", cell=lambda item: "*" if item["current"] else ""),
    TableColumn(title="NAME", cell=lambda item: item["name"]),
    TableColumn(title="GATEWAY", cell=lambda item: item["gateway"]),
    TableColumn(title="NAMESPACE", cell=lambda item: item["namespace"]),
    TableColumn(title="KEY", cell=lambda item: "yes" if item["hasKey"] else "no"),
)


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "profile", summary="gateways with their keys, by name")
    change = add_command(group, "set", summary="add or change a profile", description=_SET)
    set_completer(change.add_argument("name", metavar="NAME", help="name of the profile"), "profile")
    change.add_argument("--gateway", metavar="URL", help="address of the gateway")
    change.add_argument("--api-key", metavar="KEY", help="key of the gateway; others can read it in the process list")
    change.add_argument("-n", "--namespace", metavar="NAME", help="namespace of executions; default: the key's own")
    change.set_defaults(run=run_set)
    use = add_command(group, "use", summary="choose the current profile", description="Chooses the current profile.")
    set_completer(use.add_argument("name", metavar="NAME", help="name of the profile"), "profile")
    use.set_defaults(run=run_use)
    listing = add_command(group, "list", summary="list profiles", description="Lists profiles, without their keys.")
    add_output_option(listing, *FORMATS)
    listing.set_defaults(run=run_list)


def run_set(options: argparse.Namespace) -> None:
    """Run `profile set`. Raises CommandError."""
    file = _read()
    is_new = options.name not in file.profiles
    if is_new and not options.gateway:
        raise CommandError(f"a new profile {options.name} needs --gateway", ExitCode.USAGE)
    if options.gateway and not options.gateway.startswith(("http://", "https://")):
        raise CommandError(f"--gateway {options.gateway} must begin with http:// or https://", ExitCode.USAGE)
    key = options.api_key or (_ask_key() if is_new else None)
    changes = Profile(gateway=options.gateway, api_key=key, namespace=options.namespace)
    file.with_profile(options.name, changes).write()
    print_line(f"{options.name} is in {file.path}")


def run_use(options: argparse.Namespace) -> None:
    """Run `profile use`. Raises CommandError."""
    _read().with_current(options.name).write()
    print_line(f"{options.name} is the current profile")


def run_list(options: argparse.Namespace) -> None:
    """Run `profile list`. Raises CommandError."""
    file = _read()
    items = [
        {
            "name": name,
            "gateway": profile.gateway,
            "namespace": profile.namespace,
            "hasKey": profile.api_key is not None,
            "current": name == file.current,
        }
        for name, profile in file.profiles.items()
    ]
    empty = "no profiles: `profile set` adds one"
    print_objects(items, form=options.output, columns=_COLUMNS, name=lambda item: str(item["name"]), empty=empty)


def _read() -> ProfileFile:
    return read_profiles(default_path())


def _ask_key() -> str | None:
    key = getpass.getpass("API key: ") if sys.stdin.isatty() else sys.stdin.readline(1000)
    return key.strip() or None
