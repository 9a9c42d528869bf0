"""`python3 -m mcp_exec_operator`: reads settings, runs the operator, and maps errors to exit codes."""

import asyncio
import logging
import os
import sys

import uvloop

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.settings import SettingsError
from mcp_exec_common.process.setup import configure_logging, raise_file_limit
from mcp_exec_operator.cluster.leader_election import LeaseLost
from mcp_exec_operator.cluster.preflight import CannotStart
from mcp_exec_operator.process import run_operator
from mcp_exec_operator.settings import Settings

log = logging.getLogger("mcp_exec_operator")


def main() -> None:
    """Run the command. Exit with 2 if the settings are invalid, and with 1 after any other error, which is logged."""
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    configure_logging(settings.process_log_level)
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(run_operator(settings))
            except LeaseLost as error:
                log.error("the operator ends: %s", error)
                os._exit(1)  # at once: tasks that are left in the loop must not write any more
    except (CannotStart, ApiError, OSError) as error:
        log.error("the operator ends: %s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
