"""The gateway's settings, read once from the environment."""

from typing import Annotated

from pydantic import Field, IPvAnyNetwork, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from mcp_exec_api.constants import (
    DEFAULT_MAX_STORED,
    DEFAULT_MAX_STORED_BYTES,
    GATEWAY_AUDIENCE,
    GATEWAY_METRICS_PORT,
    GATEWAY_PORT,
)
from mcp_exec_common.process.settings import MountedKeySettings
from mcp_exec_common.usage import PriceTable


class Settings(MountedKeySettings):
    """Settings, from environment variables with the prefix `MCP_EXEC_`."""

    broker_service: str = ""
    """Name of the broker's Service; without it, tools can be neither found nor called."""
    api_keys_secret: str = ""
    """Name of the Secret with the API keys; without it, API keys are not accepted."""
    audience: Annotated[str, Field(min_length=1)] = GATEWAY_AUDIENCE
    """Audience that ServiceAccount tokens must have."""
    accounts_proven: bool = False
    """Whether admission policies force `mcp-exec.dev/created-by` to be the account that created an object. Without
    them, what is created past the gateway belongs to nobody."""
    port: Annotated[int, Field(ge=0, le=65535)] = GATEWAY_PORT
    """Port of the API and of health checks."""
    port_connections: Annotated[int, Field(ge=1, le=100_000)] = 8192
    """Open connections; more than all waits and streams together."""
    peer_connections: Annotated[int, Field(ge=1, le=100_000)] = 4096
    """Open connections of each address. Behind a proxy or an ingress each of its pods is one address."""
    metrics_port: Annotated[int, Field(ge=0, le=65535, validate_default=True)] = GATEWAY_METRICS_PORT
    """Port of metrics, which name tenants and their spending and need no authentication. Never that of the API."""
    docs: bool = True
    """Whether the API's description is served at `/docs` and `/openapi.json`."""
    prices: PriceTable = PriceTable()
    """Prices of models and sandboxes, as JSON; without them, usage has no money."""
    max_wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 310
    """Maximum `wait` of a request, in seconds."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=3 * 1024 * 1024)] = 1024 * 1024
    """Maximum size of a request body; the API server accepts objects of about 1.5 MiB."""
    max_stored: Annotated[int, Field(ge=1)] = DEFAULT_MAX_STORED
    """Maximum executions of a namespace, finished ones included, before further ones are refused."""
    max_stored_bytes: Annotated[int, Field(ge=1)] = DEFAULT_MAX_STORED_BYTES
    """Maximum bytes that the executions of a namespace take in the API server."""
    max_waits: Annotated[int, Field(ge=1)] = 4096
    """Maximum number of requests that wait for an execution at the same time."""
    max_waits_per_caller: Annotated[int, Field(ge=1)] = 1024
    """Maximum number of requests of one caller that wait, unless its API key has the limit `maxWaits`."""
    max_streams: Annotated[int, Field(ge=1)] = 512
    """Maximum number of open event streams."""
    max_streams_per_caller: Annotated[int, Field(ge=1)] = 128
    """Maximum number of open event streams of one caller, unless its API key has the limit `maxStreams`."""
    public_url: Annotated[str, Field(pattern=r"^(https?://[^\s?#]+)?$")] = ""
    """Address of the gateway in links, such as `https://gateway.example.com`; empty: that of the request."""
    max_upload_bytes: Annotated[int, Field(ge=1024)] = 256 * 1024 * 1024
    """Maximum bytes of a file that is sent to a workspace."""
    max_archive_bytes: Annotated[int, Field(ge=1024)] = 1088 * 1024 * 1024
    """Maximum bytes of an archive or a change set that is sent to a workspace. The broker limits what it has."""
    max_transfers: Annotated[int, Field(ge=1)] = 128
    """Maximum number of files that are sent or received at the same time."""
    max_transfers_per_caller: Annotated[int, Field(ge=1)] = 32
    """Maximum number of files of one caller that are sent or received at the same time."""
    max_sessions_per_caller: Annotated[int, Field(ge=0)] = 20
    """Maximum number of live sessions of one caller, unless its API key has the limit `maxSessions`."""
    skill_self_approval: bool = False
    """Whether approvers may approve skills that they saved themselves."""
    anonymous_requests_per_minute: Annotated[int, Field(ge=1)] = 300
    """Maximum rate of requests without valid credentials from one address, to this replica."""
    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = ()
    """Networks of proxies whose X-Forwarded-For names the client, as a comma-separated list; empty: it is ignored."""
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins of web pages that may use `/mcp`, as a comma-separated list; clients that are no browsers send none."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Values of the Host header that `/mcp` accepts, as a comma-separated list; empty: all."""
    mcp_heartbeat_seconds: Annotated[float, Field(gt=0, le=60)] = 15
    """Longest time without a progress notification for an MCP client that asked for progress."""
    mcp_task_after_seconds: Annotated[float, Field(gt=0, le=60)] = 10
    """Seconds after which a run becomes a task, if an MCP client of revision 2026-07-28 understands tasks."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 5
    """Seconds after SIGTERM while the gateway is not ready but accepts requests, so that load balancers notice."""
    shutdown_seconds: Annotated[float, Field(ge=0, le=600)] = 20
    """Seconds after the drain while waiting requests can still receive their complete response."""

    @field_validator("metrics_port")
    @classmethod
    def _separate(cls, metrics_port: int, info: ValidationInfo) -> int:
        if metrics_port and metrics_port == info.data.get("port"):
            raise ValueError(f"{metrics_port} is the port of the API, which callers can reach; use another one")
        return metrics_port

    @field_validator("trusted_proxies", "allowed_origins", "allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value
