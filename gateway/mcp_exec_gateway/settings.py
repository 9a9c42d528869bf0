"""The gateway's settings, read once from the environment."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from mcp_exec_api.constants import GATEWAY_AUDIENCE, GATEWAY_METRICS_PORT, GATEWAY_PORT
from mcp_exec_common.access import SCOPE, OidcIssuer, check_issuers
from mcp_exec_common.prices import PriceTable
from mcp_exec_common.process.settings import (
    ChartValue,
    Cidrs,
    ExecutionSettings,
    MountedKeySettings,
    Network,
    OutgoingSettings,
    OwnLogLevel,
)

_Origins = Annotated[list[Annotated[str, Field(pattern=r"^https?://[^,/]+$", max_length=261)]], Field(max_length=64)]
_Hosts = Annotated[list[Annotated[str, Field(pattern=r"^[^,/]+$", max_length=261)]], Field(max_length=64)]

_Scopes = Annotated[list[Annotated[str, Field(pattern=SCOPE, max_length=256)]], Field(max_length=32)]


class Settings(ExecutionSettings, OutgoingSettings, MountedKeySettings):
    """Settings, from environment variables with the prefix `MCP_EXEC_`."""

    own_log_level: Annotated[OwnLogLevel, ChartValue("gateway.logLevel")] = ""
    """Log level of the gateway. Empty means `logLevel`."""
    api_keys_secret: str = ""
    """Name of the Secret with the API keys; without it, API keys are not accepted."""
    audience: Annotated[str, Field(min_length=1, max_length=512), ChartValue("gateway.audience")] = GATEWAY_AUDIENCE
    """Audience that ServiceAccount tokens must have. The API server refuses tokens with only this audience, so nobody
    who sees one at the gateway can use it there."""
    people_audience: Annotated[str, Field(max_length=512), ChartValue("gateway.peopleAudience")] = ""
    """Audience that tokens of people may have instead, whom the cluster authenticates by OIDC or a webhook: that of the
    API server, often `https://kubernetes.default.svc`. Empty means that such tokens need `gateway.audience`, too.
    ServiceAccounts always do. Such a token is valid at the API server: whoever sees it at the gateway can use it."""
    oidc_issuers: Annotated[
        tuple[OidcIssuer, ...],
        Field(max_length=12),
        ChartValue("gateway.oidc.issuers", Annotated[list[OidcIssuer], Field(max_length=12)]),
    ] = ()
    """Identity providers whose tokens the gateway accepts. What their people may do is in `gateway.rules`."""
    oidc_scopes: Annotated[tuple[str, ...], NoDecode, ChartValue("gateway.oidc.scopes", _Scopes)] = ()
    """Scopes that MCP clients ask the issuer for, such as `openid`, or what the provider calls a right of the API."""
    oidc_narrow_by_scopes: Annotated[bool, ChartValue("gateway.oidc.narrowByScopes")] = False
    """Let a token of an issuer do only what its scopes name, of what its rule allows: `run` for everything but
    decisions, `tools` to use tools, `approve` to decide on approvals."""
    oidc_allowed_addresses: Annotated[
        tuple[Network, ...], NoDecode, ChartValue("gateway.oidc.allowedAddresses", Cidrs)
    ] = ()
    """Networks of issuers that are reached although they are loopback, link-local, unspecified, multicast, a cloud's
    metadata service or the Service of the API server. All other addresses need no entry."""
    rules_folder: Path | None = None
    """Folder with the entry `rules.json`: what people and accounts may do. It is read again when it changes."""
    port: Annotated[int, Field(ge=0, le=65535)] = GATEWAY_PORT
    """Port of the API and of health checks."""
    port_connections: Annotated[int, Field(ge=1, le=100_000)] = 8192
    """Open connections; more than all waits and streams together."""
    peer_connections: Annotated[int, Field(ge=1, le=100_000), ChartValue("gateway.maxConnectionsPerPeer")] = 4096
    """Maximum open connections of one address at each pod, of 8,192 in all. Each pod of an ingress is one address."""
    metrics_port: Annotated[
        int,
        Field(ge=0, le=65535, validate_default=True),
        ChartValue("gateway.metricsPort", Annotated[int, Field(ge=1024, le=65535)]),
    ] = GATEWAY_METRICS_PORT
    """Port of `/metrics`, which name namespaces and their spending without authentication. It is no part of the
    Service, and not 8080, the port of the API."""
    tls_folder: Path | None = None
    """Folder with `tls.crt` and `tls.key`, of a mounted Secret. Both ports then serve only TLS, and use a changed
    certificate for new connections."""
    docs: Annotated[bool, ChartValue("gateway.docs")] = True
    """Serve the API's description at `/docs` and `/openapi.json`, without authentication. It is the same for all
    releases of this version and contains nothing of this one."""
    prices: Annotated[PriceTable, ChartValue("prices")] = PriceTable()
    """Prices of models and sandboxes, to show usage as money."""
    max_wait_seconds: Annotated[
        float, Field(gt=0, le=3600), ChartValue("gateway.maxWaitSeconds", Annotated[int, Field(ge=1, le=600)])
    ] = 310
    """Maximum `wait` of a request, in seconds. A terminating pod gets the same time to answer its callers."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=3 * 1024 * 1024), ChartValue("gateway.maxBodyBytes")] = 1024 * 1024
    """Maximum bytes of a request body. The API server accepts objects of about 1.5 MiB."""
    max_waits: Annotated[int, Field(ge=1)] = 4096
    """Maximum number of requests that wait for an execution at the same time."""
    max_waits_per_caller: Annotated[int, Field(ge=1, le=4096), ChartValue("gateway.maxWaitsPerCaller")] = 1024
    """Maximum requests of one caller that wait at the same time, at each replica. An API key may have another limit."""
    max_streams: Annotated[int, Field(ge=1)] = 512
    """Maximum number of open event streams."""
    max_streams_per_caller: Annotated[int, Field(ge=1, le=512), ChartValue("gateway.maxStreamsPerCaller")] = 128
    """Maximum open event streams of one caller, at each replica. An API key may have another limit."""
    public_url: Annotated[str, Field(pattern=r"^(https?://[^\s?#]+)?$"), ChartValue("gateway.publicUrl")] = ""
    """Address of the gateway in links to artifacts, such as `https://gateway.example.com`. Empty means the address that
    the client reached it."""
    max_upload_bytes: Annotated[int, Field(ge=1024)] = 256 * 1024 * 1024
    """Maximum bytes of a file that is sent to a workspace."""
    max_archive_bytes: Annotated[int, Field(ge=1024)] = 1088 * 1024 * 1024
    """Maximum bytes of an archive or a change set that is sent to a workspace. The broker limits what it has."""
    max_transfers: Annotated[int, Field(ge=1)] = 128
    """Maximum number of files that are sent or received at the same time."""
    max_transfers_per_caller: Annotated[int, Field(ge=1)] = 32
    """Maximum number of files of one caller that are sent or received at the same time."""
    max_sessions_per_caller: Annotated[int, Field(ge=0, le=100_000), ChartValue("gateway.maxSessionsPerCaller")] = 20
    """Maximum sessions of one caller that have a pod or will get one. An API key may have another limit."""
    skill_self_approval: Annotated[bool, ChartValue("skills.selfApproval")] = False
    """Let approvers approve skills that they saved themselves."""
    anonymous_requests_per_minute: Annotated[int, Field(ge=1), ChartValue("gateway.anonymousRequestsPerMinute")] = 300
    """Maximum rate of requests without valid credentials from one address, to each replica."""
    trusted_proxies: Annotated[tuple[Network, ...], NoDecode, ChartValue("gateway.trustedProxies", Cidrs)] = ()
    """Networks of proxies whose X-Forwarded-For names the client. Empty means that the header is ignored."""
    allowed_origins: Annotated[tuple[str, ...], NoDecode, ChartValue("gateway.mcp.allowedOrigins", _Origins)] = ()
    """Origins of web pages that may use `/mcp` and the API from a browser, such as `https://ide.example`. Other clients
    send none."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode, ChartValue("gateway.mcp.allowedHosts", _Hosts)] = ()
    """Values of the Host header that `/mcp` accepts, with the port if there is one. Empty means all."""
    mcp_heartbeat_seconds: Annotated[float, Field(gt=0, le=60)] = 15
    """Longest time without a progress notification for an MCP client that asked for progress."""
    mcp_task_after_seconds: Annotated[float, Field(gt=0, le=60)] = 10
    """Seconds after which a run becomes a task, if an MCP client of revision 2026-07-28 understands tasks."""
    drain_seconds: Annotated[
        float, Field(ge=0, le=60), ChartValue("gateway.drainSeconds", Annotated[int, Field(ge=0, le=60)])
    ] = 5
    """Seconds that a terminating pod still accepts requests, until every node has removed it from the Service."""
    shutdown_seconds: Annotated[float, Field(ge=0, le=600)] = 20
    """Seconds after the drain while waiting requests can still receive their complete response."""

    @field_validator("metrics_port")
    @classmethod
    def _separate(cls, metrics_port: int, info: ValidationInfo) -> int:
        if metrics_port and metrics_port == info.data.get("port"):
            raise ValueError(f"{metrics_port} is the port of the API, which callers can reach; use another one")
        return metrics_port

    @field_validator("oidc_issuers")
    @classmethod
    def _check_issuers(cls, issuers: tuple[OidcIssuer, ...]) -> tuple[OidcIssuer, ...]:
        check_issuers(issuers)
        return issuers

    @field_validator(
        "oidc_scopes", "oidc_allowed_addresses", "trusted_proxies", "allowed_origins", "allowed_hosts", mode="before"
    )
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value
