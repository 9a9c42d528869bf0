"""Shows the version of this program, and that of the gateway if there is one.

examples:
  mcp-exec version
  mcp-exec version --client
  mcp-exec version -o json
"""

import argparse

from mcp_exec_client.cli.connection import open_client, resolve_gateway
from mcp_exec_client.cli.options import Object, Subcommands, add_client_options, add_command, add_output_option
from mcp_exec_client.cli.output import print_data, print_line


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "version", summary="show the versions", description=__doc__, run=_run)
    command.add_argument("--client", action="store_true", help="show the version of this program only")
    add_output_option(command, "text", "json", "yaml")
    add_client_options(command)


async def _run(options: argparse.Namespace) -> None:
    from mcp_exec_api.wire.version import RELEASE

    versions: Object = {"client": {"version": RELEASE}}
    if not options.client and resolve_gateway(options).gateway:
        async with open_client(options) as client:
            found = await client.version()
        versions["gateway"] = found.model_dump(mode="json", by_alias=True)
    if options.output in ("json", "yaml"):
        print_data(versions, form=options.output)
        return
    for name, fields in versions.items():
        print_line(f"{name}: {fields['version']}")
