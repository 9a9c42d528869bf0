"""`python -m mcp_exec_gateway`: the gateway as a process."""

import asyncio
import logging
import sys

import uvloop
from pydantic import ValidationError

from mcp_exec_api.logs import configure_logging
from mcp_exec_api.meta import field_errors
from mcp_exec_gateway.app import build_app
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.server import serve
from mcp_exec_gateway.settings import PREFIX, Settings, load_settings


async def run(settings: Settings) -> None:
    """Serves until the process is told to stop."""
    async with Dependencies.connect(settings) as dependencies:
        await serve(build_app(dependencies=dependencies), dependencies=dependencies)


def main() -> int:
    """Reads the settings, serves, and returns the exit code."""
    try:
        settings = load_settings()
    except ValidationError as error:
        for found in field_errors(error):
            sys.stderr.write(f"{PREFIX}{found.field.upper()}: {found.message}\n")
        return 2
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging(settings.log_level)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # what it says of its life is said here already
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
