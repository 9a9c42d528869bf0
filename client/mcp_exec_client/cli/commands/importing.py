"""Makes a ToolServer of an application's own tools, and prints it for `kubectl apply`.

Of the configuration of a desktop client, with `mcpServers` (VS Code: `servers`), it makes the ToolServer of the server
NAME, or of the only one. No credential is printed: the manifest refers to a Secret, whose command goes to standard
error.

Of definitions, as a list or {"tools": [...]} in the forms of Anthropic, OpenAI and MCP, each call is a POST of the
arguments to URL/TOOL of the application. Of a Python file, the public functions at its top level are the tools, and the
server runs them; the file is read here and not run.

examples:
  mcp-exec servers import shop --from-python shop_tools.py | kubectl apply -n agents -f -
  mcp-exec servers import github --from-file claude_desktop_config.json | kubectl apply -n agents -f -
  mcp-exec servers import shop --from-file tools.json --url http://shop.web.svc:8000/tools | kubectl apply -f -
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    Object,
    Subcommands,
    add_command,
    add_output_option,
    add_repeated,
    pair,
    set_completer,
)
from mcp_exec_client.cli.output import print_data, print_note

if TYPE_CHECKING:
    from mcp_exec_client.cli.importing.definitions import ImportProblem
    from mcp_exec_client.cli.importing.desktop_config import ConfiguredServer
    from mcp_exec_client.cli.importing.manifest import SecretVariable, ServerPod


_IMAGE: Final = "localhost/mcp-exec-servers:dev"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,58}[a-z0-9])?", re.ASCII)
"""A Service `ts-NAME` has at most 63 characters."""
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_VARIABLE: Final = re.compile(r"(?!MCP_EXEC_)[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_SECRET: Final = re.compile(r"([a-z0-9][-a-z0-9.]{0,252})/([-._A-Za-z0-9]{1,253})", re.ASCII)
_MAX_PROBLEMS: Final = 20


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "import", summary="make a ToolServer of own tools", description=__doc__)
    command.add_argument("name", metavar="NAME", help="name of the ToolServer, which code imports: servers.NAME")
    source = command.add_mutually_exclusive_group(required=True)
    definitions = source.add_argument(
        "--from-file",
        metavar="JSON",
        type=Path,
        help="file with definitions of tools, or the configuration of a client",
    )
    functions = source.add_argument("--from-python", metavar="FILE", type=Path, help="Python file with functions")
    for option in (definitions, functions):
        set_completer(option, "file")
    command.add_argument(
        "--url", metavar="URL", help="with definitions in --from-file: address of the application that has the tools"
    )
    add_repeated(command, "--only", metavar="TOOL", help="import only this tool")
    command.add_argument(
        "--skip-invalid", action="store_true", help="leave out tools that cannot be imported; default: fail"
    )
    command.add_argument(
        "--image",
        metavar="IMAGE",
        help=f"image with Python and the MCP SDK; default: {_IMAGE}; for the command of a configuration, "
        "an image with the server and Python, without a default",
    )
    add_repeated(
        command,
        "--secret-env",
        metavar="VARIABLE=SECRET/KEY",
        type=pair,
        help=(
            "environment variable of the server, from a Secret of its namespace; with --from-file, APPLICATION_TOKEN "
            "is sent as a bearer token"
        ),
    )
    add_repeated(
        command,
        "--egress",
        metavar="CIDR",
        help="network that the server may reach",
        more="; default: that of the URL, else none",
    )
    command.add_argument("-n", "--namespace", metavar="NAME", help="namespace of the ToolServer; default: kubectl's")
    add_output_option(command, "yaml", "json")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError."""
    _check_names(options)
    manifest = _import_functions(options) if options.from_python else _import_file(options)
    print_data(manifest, form=options.output)


def _import_functions(options: argparse.Namespace) -> Object:
    from mcp_exec_client.cli.importing.manifest import allow_networks, build_function_server, read_functions

    if options.url:
        raise CommandError("--url is allowed only with --from-file", ExitCode.USAGE)
    found = read_functions(options.from_python)
    names = _select(found.names, found.problems, options, options.from_python)
    print_note(f"{options.name}: {len(names)} tools")
    return build_function_server(
        options.name,
        source=found.source,
        file=options.from_python.name,
        functions=names,
        pod=_build_pod(options, allow_networks(options.egress)),
    )


def _import_file(options: argparse.Namespace) -> Object:
    from mcp_exec_client.cli.importing.definitions import read_json
    from mcp_exec_client.cli.importing.desktop_config import choose_server, find_servers

    data = read_json(options.from_file)
    if (servers := find_servers(data)) is None:
        return _import_definitions(options, data)
    if options.url:
        raise CommandError("--url is for definitions of tools; a configuration has its own addresses", ExitCode.USAGE)
    return _import_configured(options, choose_server(servers, options.name, path=options.from_file))


def _import_configured(options: argparse.Namespace, server: "ConfiguredServer") -> Object:
    from mcp_exec_client.cli.importing.manifest import (
        SecretVariable,
        allow_networks,
        build_remote_server,
        build_server,
    )

    secret = f"{options.name}-credentials"
    given = {name: _parse_variable(name, reference) for name, reference in options.secret_env}

    def refer(name: str) -> "SecretVariable":
        return given.get(name) or SecretVariable(name=name, secret=secret, key=name)

    if server.url:
        headers = [(refer(each.name), each.prefix) for each in server.headers]
        manifest = build_remote_server(options.name, url=server.url, headers=headers, namespace=options.namespace)
    else:
        pod = _build_pod(options, allow_networks(options.egress), image=_require_image(options, server))
        others = [refer(name) for name in server.variables if name not in given]
        pod = replace(pod, variables=[*pod.variables, *others])
        manifest = build_server(options.name, server.command, pod)
    if options.only:
        manifest["spec"]["allow"] = options.only
    for key in server.ignored:
        print_note(f"left out: {key}, which a ToolServer does not have")
    names = [*server.variables, *(each.name for each in server.headers)]
    if missing := [name for name in names if name not in given]:
        values = " ".join(f"--from-literal={name}=..." for name in missing)
        namespace = f" -n {options.namespace}" if options.namespace else ""
        print_note(f"create its Secret, with the values of {options.from_file}:")
        print_note(f"  kubectl create secret generic {secret}{namespace} {values}")
    return manifest


def _require_image(options: argparse.Namespace, server: "ConfiguredServer") -> str:
    """Return the image of a command. Raises CommandError if none was given."""
    if options.image:
        return str(options.image)
    command = " ".join(server.command)[:200]
    cause = f"{server.command[0]} downloads it at each start, and pods reach no network: " if server.downloads else ""
    raise CommandError(
        f"{options.name} runs `{command}`: {cause}--image must name an image that has the server and Python 3 "
        "(docs/start/your-own-server.md)",
        ExitCode.USAGE,
    )


def _import_definitions(options: argparse.Namespace, data: object) -> Object:
    import json

    from mcp_exec_client.cli.importing.definitions import read_definitions
    from mcp_exec_client.cli.importing.manifest import allow_networks, allow_url, build_forwarding_server
    from mcp_exec_tools.text import estimate_tokens

    found = read_definitions(data, path=options.from_file)
    url = _check_url(options.url)
    names = _select(list(found.entries), found.problems, options, options.from_file)
    tools = [found.entries[name] for name in names]
    tokens = estimate_tokens(json.dumps(tools))
    print_note(f"{options.name}: {len(tools)} tools, whose definitions have about {tokens} tokens")
    pod = _build_pod(options, allow_networks(options.egress) or allow_url(url))
    return build_forwarding_server(options.name, url=url, tools=tools, pod=pod)


def _select(
    names: Sequence[str], problems: Sequence["ImportProblem"], options: argparse.Namespace, path: Path
) -> list[str]:
    """Return the tools to import. Raises CommandError if there are none, or if one of them cannot be imported."""
    wanted = set(options.only)
    lines = [f"{each.tool}: {each.reason}" for each in problems if not wanted or each.tool in wanted]
    if missing := wanted - set(names) - {problem.tool for problem in problems}:
        raise CommandError(f"{path} has no tool {_list(missing)}; it has {_list(names) or 'none'}")
    if lines and not options.skip_invalid:
        text = f"{len(lines)} tools of {path} cannot be imported; --skip-invalid leaves them out: "
        raise CommandError(text + "; ".join(lines[:_MAX_PROBLEMS]))
    for line in lines[:_MAX_PROBLEMS]:
        print_note(f"left out: {line}")
    selected = [name for name in names if not wanted or name in wanted]
    if not selected:
        raise CommandError(f"{path} has no tools to import")
    return selected


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:_MAX_PROBLEMS])


def _build_pod(options: argparse.Namespace, egress: Sequence[Object], *, image: str = "") -> "ServerPod":
    from mcp_exec_client.cli.importing.manifest import ServerPod

    return ServerPod(
        image=image or options.image or _IMAGE,
        namespace=options.namespace,
        variables=[_parse_variable(name, reference) for name, reference in options.secret_env],
        egress=egress,
    )


def _parse_variable(name: str, reference: str) -> "SecretVariable":
    from mcp_exec_client.cli.importing.manifest import SecretVariable

    if not _VARIABLE.fullmatch(name):
        text = f"--secret-env {name[:80]}: a variable has letters, digits and '_', and does not begin with MCP_EXEC_"
        raise CommandError(text, ExitCode.USAGE)
    match = _SECRET.fullmatch(reference)
    if match is None:
        raise CommandError(f"--secret-env {name}={reference[:80]}: it must be VARIABLE=SECRET/KEY", ExitCode.USAGE)
    return SecretVariable(name=name, secret=match[1], key=match[2])


def _check_names(options: argparse.Namespace) -> None:
    import ipaddress

    if not _NAME.fullmatch(options.name):
        text = f"{options.name[:80]!r} is not a name: allowed are 1 to 60 of a-z, 0-9 and '-', such as shop-tools"
        raise CommandError(text, ExitCode.USAGE)
    if options.namespace is not None and not _NAMESPACE.fullmatch(options.namespace):
        text = f"{options.namespace[:80]!r} is not a namespace: allowed are 1 to 63 of a-z, 0-9 and '-'"
        raise CommandError(text, ExitCode.USAGE)
    for network in options.egress:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise CommandError(f"--egress {network[:80]}: {error}; allowed is 10.20.0.0/16", ExitCode.USAGE) from error


def _check_url(url: str | None) -> str:
    """Return the URL of the application. Raises CommandError if it has none, or parts that are not allowed."""
    from mcp_exec_client.cli.importing.desktop_config import split_web_address

    if url is None:
        raise CommandError("definitions in --from-file need --url: calls of the tools are sent there", ExitCode.USAGE)
    if (parts := split_web_address(url)) is None:
        raise CommandError(f"--url {url[:80]}: it must be http://HOST[:PORT]/PATH, or https", ExitCode.USAGE)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise CommandError("--url has a password, query or fragment: use --secret-env for credentials", ExitCode.USAGE)
    return url
