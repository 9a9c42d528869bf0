"""The gateway's settings, read once from the environment."""

from typing import Annotated

from pydantic import Field

from mcp_exec_api.constants import GATEWAY_PORT
from mcp_exec_common.process.settings import ProcessSettings


class Settings(ProcessSettings):
    """All that can be set, by environment variables with the prefix `MCP_EXEC_`."""

    release_namespace: str
    """Namespace of the API keys' Secret, and of the broker's Service."""
    broker_service: str = ""
    """The broker's Service; empty means that there is none, and tools can be neither found nor called."""
    api_keys_secret: str = ""
    """Secret with the API keys; empty means that none are accepted."""
    audience: str = ""
    """Audience that ServiceAccount tokens must have; empty means the API server's own."""
    port: Annotated[int, Field(ge=0, le=65535)] = GATEWAY_PORT
    """Port of everything: API, health and metrics."""
    max_wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 310
    """The longest `wait` that a request may ask for."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=3 * 1024 * 1024)] = 1024 * 1024
    """The largest request body; the API server takes objects of about 1.5 MiB."""
    max_waits: Annotated[int, Field(ge=1)] = 4096
    """Requests that may wait for an execution at once."""
    max_streams: Annotated[int, Field(ge=1)] = 512
    """Event streams that may be open at once."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 5
    """Seconds from SIGTERM, in which requests are still taken while load balancers learn that this replica goes."""
    shutdown_seconds: Annotated[float, Field(ge=0, le=600)] = 20
    """Seconds after that, in which waiting requests may still get their whole answer."""
