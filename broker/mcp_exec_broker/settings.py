"""The broker's settings, read once from the environment."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from mcp_exec_api.constants import BROKER_CONTROL_PORT, BROKER_PORT
from mcp_exec_common.process.settings import ProcessSettings


class Settings(ProcessSettings):
    """All that can be set, by environment variables with the prefix `MCP_EXEC_`."""

    audit_file: Path = Path("/var/lib/mcp-exec/audit.sqlite")
    """The file of the audit's records."""
    audit_keep_days: Annotated[float, Field(gt=0)] = 30
    """Days that records are kept."""
    audit_keep_bytes: Annotated[int, Field(ge=1024 * 1024)] = 1024**3
    """Bytes that they may take; the oldest go first."""
    port: Annotated[int, Field(ge=0, le=65535)] = BROKER_PORT
    """Port of calls from sandboxes."""
    control_port: Annotated[int, Field(ge=0, le=65535)] = BROKER_CONTROL_PORT
    """Port of what operator and gateway ask, of health and metrics."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 17 * 1024 * 1024
    """The largest body of a call; each server has a bound of its own for arguments."""
    max_calls: Annotated[int, Field(ge=1)] = 1024
    """Calls that may be under way at once, of all executions; more are denied."""
    max_connections: Annotated[int, Field(ge=1)] = 256
    """Connections for single users that are kept open; the one unused for the longest time goes first."""
    secret_seconds: Annotated[float, Field(ge=0, le=600)] = 5
    """Seconds that a Secret is used before it is read again; a server that refuses it makes that happen at once."""
    connect_timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 15
    """Seconds that a server may take until it is connected, and until its tools are listed."""
    idle_seconds: Annotated[float, Field(gt=0)] = 300
    """Seconds without a call after which the connection for a single user is closed."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 3
    """Seconds from SIGTERM in which calls are still taken, while sandboxes learn that this replica goes."""
    shutdown_seconds: Annotated[float, Field(ge=0, le=600)] = 10
    """Seconds after that in which calls that are under way may end."""
