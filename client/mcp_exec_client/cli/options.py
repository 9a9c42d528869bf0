"""Options that all commands share."""

import argparse
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
"""Parser of commands that further commands are added to."""
Action: TypeAlias = Callable[[argparse.Namespace], Coroutine[Any, Any, None]]
"""Work of a command with its options. Raises CommandError."""
Target: TypeAlias = "argparse._ActionsContainer"  # noqa: SLF001
"""A command, or a group of its options."""
MAX_WAIT_SECONDS: Final = 24 * 3600
Object: TypeAlias = dict[str, Any]
_T = TypeVar("_T")


def add_command(
    commands: Subcommands, name: str, *, summary: str, description: str | None, run: Action | None = None
) -> argparse.ArgumentParser:
    """Add a command without options. `description` is shown as it is, with its line breaks; `run` is interruptible."""
    command = commands.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if run is not None:
        command.set_defaults(run=lambda options: run_interruptible(run(options)))
    return command


def add_group(commands: Subcommands, name: str, *, summary: str) -> Subcommands:
    """Add a command that consists of commands, and return where these are added."""
    group = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    return group.add_subparsers(required=True, metavar="COMMAND")


def add_gateway_options(command: argparse.ArgumentParser, *, note: str = "") -> None:
    """Add the options of a gateway to a command. `note` begins their help texts."""
    command.add_argument(
        "--gateway", metavar="URL", help=f"{note}address of the gateway; default: $MCP_EXEC_GATEWAY, then the profile's"
    )
    command.add_argument(
        "--api-key", metavar="KEY", help=f"{note}key of the gateway; default: $MCP_EXEC_API_KEY, then the profile's"
    )
    profile = command.add_argument(
        "--profile",
        metavar="NAME",
        help=f"{note}profile with gateway and key; default: $MCP_EXEC_PROFILE, then the current one",
    )
    set_completer(profile, "profile")


def add_client_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a command that an API server can't serve."""
    add_gateway_options(command)
    command.add_argument("-n", "--namespace", metavar="NAME", help="namespace; default: the key's own")


def add_kubeconfig_options(command: argparse.ArgumentParser) -> None:
    """Add the options of an API server to a command."""
    kubeconfig = command.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="use the API server of this kubeconfig file, not a gateway; only the plugin of kubectl has a default: "
        "$KUBECONFIG, then ~/.kube/config",
    )
    set_completer(kubeconfig, "file")
    command.add_argument("--kube-context", metavar="NAME", help="context of the kubeconfig; default: its current one")


def add_connection_options(command: argparse.ArgumentParser) -> None:
    """Add the options that choose a gateway or an API server, and a namespace."""
    add_gateway_options(command)
    add_kubeconfig_options(command)
    command.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="namespace of executions; default: $MCP_EXEC_NAMESPACE, then that of the profile or context, then the "
        "key's own",
    )


def add_output_option(command: argparse.ArgumentParser, *formats: str) -> None:
    """Add -o with these formats. The first is the default."""
    command.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=formats,
        default=formats[0],
        help=f"one of {', '.join(formats)}; default: {formats[0]}",
    )


def set_completer(action: argparse.Action, kind: str) -> None:
    """Say of what kind the values of an option or argument are, for completion.

    Kinds are `execution`, `session`, `profile` and `file`.
    """
    action.completer = kind  # type: ignore[attr-defined]


def add_number(
    command: Target,
    name: str,
    lowest: float,
    highest: float,
    *,
    help: str,
    metavar: str = "N",
    default: float | None = None,
    dest: str | None = None,
) -> None:
    """Add an option that is a number within these bounds: a whole one, or any if the default is a float."""
    kind = type(default) if default is not None else int

    def number(text: str) -> float:
        value: float = kind(text)
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"must be between {lowest} and {highest}")
        return value

    number.__name__ = "seconds" if kind is float else "number"
    shown = "" if default is None else f"; default: {default:.0f}"
    command.add_argument(name, dest=dest, metavar=metavar, type=number, default=default, help=help + shown)


def add_repeated(command: Target, *names: str, help: str, more: str = "", **options: Any) -> None:
    """Add an option that may be repeated, with a list of values. `more` ends its help."""
    help += "; may be repeated" + more
    command.add_argument(*names, action="append", default=[], help=help, **options)


def pair(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} must be KEY=VALUE")
    return name, value


def run_interruptible(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command. The first interrupt cancels its task, and so does each further one.

    Raises CommandError after an interrupt that the command does not handle.
    """
    try:
        # Imported for a command, not for its help.
        from mcp_exec_client.cli.interrupts import run_work
    except BaseException:  # an interrupt: Python would warn of work that never began
        work.close()
        raise
    return run_work(work)
