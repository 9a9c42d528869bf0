"""Entry points of the programs, which an interrupt ends without a traceback, also while they import the rest."""

import signal

Arguments = list[str] | None


def main(arguments: Arguments = None) -> None:
    """Run `mcp-exec`."""
    _start("main", arguments)


def kubectl_main(arguments: Arguments = None) -> None:
    """Run the plugin of kubectl."""
    _start("kubectl_main", arguments)


def kubectl_complete_main(arguments: Arguments = None) -> None:
    """Complete a command line of the plugin."""
    _start("kubectl_complete_main", arguments)


def _start(entry: str, arguments: Arguments) -> None:
    # nothing has begun that would need an end: until a command runs, the system's own action ends the program
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from mcp_exec_client.cli import main as program

        getattr(program, entry)(arguments)
    finally:
        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, handler)
