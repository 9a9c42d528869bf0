"""Entry of the sandbox container: `python3 -m mcp_exec_sandbox` starts the supervisor."""

import asyncio
import os
import sys

from mcp_exec_sandbox.supervisor.lifecycle import serve
from mcp_exec_sandbox.supervisor.settings import SandboxSettingsError, Settings


def main() -> int:
    """Read the settings, run the supervisor until it is stopped, and return the exit code."""
    if not sys.flags.safe_path:
        # `-m` puts the working folder first. The agent's code can write there, so no late import may read from it.
        del sys.path[0]
    try:
        settings = Settings.from_environment(os.environ)
    except SandboxSettingsError as error:
        sys.stderr.write(f"mcp-exec sandbox: {error}\n")
        return 2
    return asyncio.run(serve(settings))


if __name__ == "__main__":
    sys.exit(main())
