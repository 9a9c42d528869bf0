"""`python -m mcp_exec_gateway`: the gateway as a process."""

import asyncio
import logging
import sys

import uvloop

from mcp_exec_common.process.settings import SettingsError
from mcp_exec_common.process.setup import configure_logging, raise_file_limit
from mcp_exec_common.process.tls import MountedCertificate
from mcp_exec_gateway.app import build_app, build_metrics_app, serve
from mcp_exec_gateway.core.dependencies import Dependencies
from mcp_exec_gateway.features import FEATURES
from mcp_exec_gateway.settings import Settings


async def run(settings: Settings, certificate: MountedCertificate | None) -> None:
    """Serve until the process receives SIGTERM or SIGINT."""
    async with Dependencies.connect(settings, features=FEATURES.values()) as dependencies:
        metrics_app = build_metrics_app(dependencies) if settings.metrics else None
        app = build_app(dependencies)
        await serve(app, dependencies=dependencies, metrics_app=metrics_app, certificate=certificate)


def main() -> int:
    """Read the settings, serve, and return the exit code: 2 if a setting is invalid."""
    try:
        settings = Settings.from_environment()
        certificate = MountedCertificate(settings.tls_folder) if settings.tls_folder else None
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OSError, ValueError) as error:
        sys.stderr.write(f"MCP_EXEC_TLS_FOLDER: {error}\n")
        return 2
    configure_logging(settings.process_log_level)
    raise_file_limit()
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # the gateway logs its start and stop itself
    # A handshake of uvloop's start_tls that begins with the connection never ends (uvloop 0.23).
    factory = asyncio.new_event_loop if certificate else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run(settings, certificate))
    return 0


if __name__ == "__main__":
    sys.exit(main())
