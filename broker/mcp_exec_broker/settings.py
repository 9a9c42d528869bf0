"""Settings of the broker, read once from the environment."""

from collections.abc import Container
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, IPvAnyAddress, field_validator
from pydantic_settings import NoDecode

from mcp_exec_api.constants import BROKER_CONTROL_PORT, BROKER_PORT
from mcp_exec_api.wire.workspaces import MAX_FILES, MAX_LISTED_WORKSPACES
from mcp_exec_common.process.settings import (
    PREFIX,
    ChartValue,
    Cidrs,
    Days,
    MountedKeySettings,
    Network,
    OutgoingSettings,
    OwnLogLevel,
    SettingsError,
)

_DAY: Final = 24 * 3600
_FEATURES: Final = {"audit": "records", "records": "records", "files": "files"}
"""The feature that applies a setting, by the first word of the setting's name."""


class Settings(OutgoingSettings, MountedKeySettings):
    """Settings from environment variables with the prefix `MCP_EXEC_`."""

    own_log_level: Annotated[OwnLogLevel, ChartValue("broker.logLevel")] = ""
    """Log level of the broker. Empty means `logLevel`."""
    audit_file: Path = Path("/var/lib/mcp-exec/audit.sqlite")
    """SQLite file of the audit log."""
    audit_keep_days: Annotated[float, Field(gt=0), ChartValue("broker.audit.keepDays", Days)] = 30
    """Days that records are kept."""
    audit_keep_bytes: Annotated[int, Field(ge=1024 * 1024), ChartValue("broker.audit.keepBytes")] = 768 * 1024 * 1024
    """Maximum bytes of records, at least 256 MiB less than `size`. The oldest records are deleted first."""
    records_file: Path | None = None
    """SQLite file of the records, which one broker writes. None means a database of PostgreSQL, or no records."""
    records_database_file: Path | None = None
    """File with the URL of a PostgreSQL database for the records: postgresql://USER:PASSWORD@HOST/NAME."""
    records_keep_days: Annotated[float, Field(gt=0), ChartValue("broker.records.keepDays", Days)] = 90
    """Days that records are kept."""
    records_keep_bytes: Annotated[int, Field(ge=1024 * 1024), ChartValue("broker.records.keepBytes")] = 1024**3
    """Maximum bytes of the SQLite file's records, at least 256 MiB less than the volume. The oldest of the namespace
    that uses most are deleted first."""
    files_folder: Path | None = None
    """Folder of a volume for workspaces and artifacts, which one broker writes. None means a bucket, or no files."""
    files_bucket: Annotated[
        str, Field(pattern=r"^([a-z0-9][-a-z0-9.]{1,61}[a-z0-9])?$"), ChartValue("broker.files.s3.bucket")
    ] = ""
    """Name of the bucket. Empty means a volume."""
    files_prefix: Annotated[
        str, Field(pattern=r"^([A-Za-z0-9][-A-Za-z0-9._/]{0,200})?$"), ChartValue("broker.files.s3.prefix")
    ] = ""
    """Prefix of all keys."""
    files_endpoint: Annotated[str, Field(pattern=r"^(https?://[^/]+)?$"), ChartValue("broker.files.s3.endpoint")] = ""
    """URL of the service. Empty means AWS."""
    files_region: Annotated[str, Field(pattern=r"^[-a-z0-9]{0,64}$"), ChartValue("broker.files.s3.region")] = ""
    """Region of the bucket. Empty means us-east-1."""
    files_credentials: Path | None = None
    """Folder with the files `accessKeyId` and `secretAccessKey`. None means the credentials of the node or pod."""
    files_workspace_bytes: Annotated[int, Field(ge=1024), ChartValue("broker.files.limits.workspaceBytes")] = 1024**3
    """Maximum bytes of a workspace's files."""
    files_workspace_files: Annotated[
        int, Field(ge=1, le=MAX_FILES), ChartValue("broker.files.limits.workspaceFiles")
    ] = 20_000
    """Maximum files of a workspace."""
    files_file_bytes: Annotated[int, Field(ge=1024), ChartValue("broker.files.limits.fileBytes")] = 256 * 1024**2
    """Maximum bytes of one file."""
    files_owner_workspaces: Annotated[
        int, Field(ge=1, le=MAX_LISTED_WORKSPACES), ChartValue("broker.files.limits.ownerWorkspaces")
    ] = 100
    """Maximum workspaces of one owner."""
    files_owner_bytes: Annotated[int, Field(ge=1024), ChartValue("broker.files.limits.ownerBytes")] = 10 * 1024**3
    """Maximum bytes that one owner stores, with older versions and artifacts."""
    files_namespace_bytes: Annotated[int, Field(ge=1024), ChartValue("broker.files.limits.namespaceBytes")] = (
        50 * 1024**3
    )
    """Maximum bytes that all owners of a namespace store."""
    files_workspace_ttl_seconds: Annotated[
        int, Field(ge=3600), ChartValue("broker.files.limits.workspaceTtlDays", Days, times=_DAY)
    ] = 30 * _DAY
    """Time after its last use until a workspace is deleted, unless it has a value of its own."""
    files_artifact_bytes: Annotated[int, Field(ge=1024), ChartValue("broker.files.limits.artifactBytes")] = 64 * 1024**2
    """Maximum bytes of one artifact."""
    files_artifact_ttl_seconds: Annotated[
        int, Field(ge=60), ChartValue("broker.files.limits.artifactTtlDays", Days, times=_DAY)
    ] = 7 * _DAY
    """Time until an artifact is deleted."""
    port: Annotated[int, Field(ge=0, le=65535)] = BROKER_PORT
    """Port for calls from sandboxes."""
    control_port: Annotated[int, Field(ge=0, le=65535)] = BROKER_CONTROL_PORT
    """Port for requests of operator and gateway, health and metrics."""
    replica: str = ""
    """Uid of this pod: grants for other replicas are refused. Empty in tests: grants of any replica are accepted."""
    check_pod_address: Annotated[bool, ChartValue("broker.checkPodAddress")] = True
    """Accept a grant only from the address of its sandbox. Disable it if the network translates the source addresses of
    connections between pods."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 17 * 1024 * 1024
    """Maximum body of a call in bytes; each ToolServer limits its arguments as well."""
    peer_connections: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Open connections of each port and address. A sandbox needs ten for each event loop of its code."""
    max_calls: Annotated[int, Field(ge=1, le=100_000), ChartValue("broker.maxCalls")] = 1024
    """Maximum concurrent calls in each pod. More are denied."""
    max_connections: Annotated[int, Field(ge=1)] = 256
    """Open connections for single users; the least recently used is closed first."""
    allowed_addresses: Annotated[tuple[Network, ...], NoDecode, ChartValue("broker.allowedAddresses", Cidrs)] = ()
    """Networks that the broker connects to for a ToolServer although they are loopback, link-local, unspecified,
    multicast, a cloud's metadata service, the Service of the API server, or a part of the release. All other addresses
    need no entry."""
    pod_ips: Annotated[tuple[IPvAnyAddress, ...], NoDecode] = ()
    """Addresses of this pod, as a comma-separated list, which no ToolServer leads the broker to."""
    secret_seconds: Annotated[float, Field(ge=0, le=600)] = 5
    """Seconds until a Secret is read again. If a server rejects its credentials, that happens at once."""
    connect_timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 15
    """Seconds for connecting to a server, and for listing its tools."""
    idle_seconds: Annotated[float, Field(gt=0)] = 300
    """Seconds without a call until the connection for a single user is closed."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 3
    """Seconds after SIGTERM while new executions are still accepted, until the operator chooses other replicas."""
    shutdown_seconds: Annotated[
        float, Field(ge=0, le=600), ChartValue("broker.shutdownSeconds", Annotated[int, Field(ge=0, le=300)])
    ] = 10
    """Seconds that executions with tools have to end when a pod terminates. No other pod accepts their calls."""

    def check_features(self, features: Container[str]) -> None:
        """Raise SettingsError if a value is set for a feature that is missing, because nothing would apply it."""
        lines = []
        for name in sorted(self.model_fields_set):
            feature = _FEATURES.get(name.partition("_")[0])
            if feature is not None and feature not in features:
                lines.append(f"{PREFIX}{name.upper()}: this broker lacks the feature {feature}")
        if lines:
            raise SettingsError("\n".join(lines))

    @field_validator("allowed_addresses", "pod_ips", mode="before")
    @classmethod
    def _split_addresses(cls, value: object) -> object:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value
