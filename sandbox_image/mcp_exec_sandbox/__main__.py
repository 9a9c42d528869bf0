"""Entry of the sandbox container, by its path or as `python3 -m mcp_exec_sandbox`: it starts the supervisor."""

import gc
import sys

from mcp_exec_sandbox import bundle


def main() -> int:
    """Read the settings, run the supervisor until it is stopped, and return the exit code."""
    if not sys.flags.safe_path:
        # `-m` puts the working folder first. The agent's code can write there, so no late import may read from it.
        del sys.path[0]
    gc.disable()
    bundle.install()
    from mcp_exec_sandbox.early_runner import EarlyRunner, import_common

    import_common()
    # The collector skips what both processes share: it would copy each page of it.
    gc.freeze()
    import os

    # Read again with the other settings, and checked then.
    runner = EarlyRunner(os.environ.get("MCP_EXEC_LANGUAGE", ""))
    # Without OpenSSL, whose start takes long, hashlib and hmac use Python's own functions.
    sys.modules["_hashlib"] = None  # type: ignore[assignment]
    import asyncio.base_events

    # The supervisor has no TLS. asyncio would load OpenSSL to see that a listening socket is none of TLS.
    vars(asyncio.base_events)["ssl"] = None

    from mcp_exec_sandbox.supervisor.lifecycle import serve
    from mcp_exec_sandbox.supervisor.settings import SandboxSettingsError, Settings

    try:
        settings = Settings.from_environment(os.environ)
    except SandboxSettingsError as error:
        sys.stderr.write(f"mcp-exec sandbox: {error}\n")
        return 2
    bundle.forget_start()
    gc.enable()
    code = asyncio.run(serve(settings, spawn=runner.start))
    if os.getpid() == 1:
        # The teardown of the interpreter takes time, and nothing is left to do.
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
