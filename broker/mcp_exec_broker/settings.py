"""Settings of the broker, read once from the environment."""

from collections.abc import Container
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, IPvAnyAddress, IPvAnyNetwork, field_validator
from pydantic_settings import NoDecode

from mcp_exec_api.constants import BROKER_CONTROL_PORT, BROKER_PORT
from mcp_exec_api.wire.workspaces import MAX_FILES, MAX_LISTED_WORKSPACES
from mcp_exec_common.process.settings import PREFIX, MountedKeySettings, SettingsError

_FEATURES: Final = {"audit": "records", "records": "records", "files": "files"}
"""The feature that applies a setting, by the first word of the setting's name."""


class Settings(MountedKeySettings):
    """Settings from environment variables with the prefix `MCP_EXEC_`."""

    audit_file: Path = Path("/var/lib/mcp-exec/audit.sqlite")
    """SQLite file of the audit log."""
    audit_keep_days: Annotated[float, Field(gt=0)] = 30
    """Days until an audit record is deleted."""
    audit_keep_bytes: Annotated[int, Field(ge=1024 * 1024)] = 1024**3
    """Maximum size of the audit records in bytes; the oldest are deleted first."""
    records_file: Path | None = None
    """SQLite file of the records, which one broker writes. None means a database of PostgreSQL, or no records."""
    records_database_file: Path | None = None
    """File with the URL of a PostgreSQL database for the records: postgresql://USER:PASSWORD@HOST/NAME."""
    records_keep_days: Annotated[float, Field(gt=0)] = 90
    """Days until a record is deleted."""
    records_keep_bytes: Annotated[int, Field(ge=1024 * 1024)] = 1024**3
    """Maximum bytes of records in the SQLite file; the oldest of the namespace that uses most are deleted first."""
    files_folder: Path | None = None
    """Folder of a volume for workspaces and artifacts, which one broker writes. None means a bucket, or no files."""
    files_bucket: str = ""
    """Bucket of S3 for workspaces and artifacts."""
    files_prefix: str = ""
    """Prefix of all keys in the bucket."""
    files_endpoint: str = ""
    """URL of a service with the interface of S3. Empty means AWS."""
    files_region: str = ""
    """Region of the bucket."""
    files_credentials: Path | None = None
    """Folder with the files `accessKeyId` and `secretAccessKey`. None means the credentials of the node or pod."""
    files_workspace_bytes: Annotated[int, Field(ge=1024)] = 1024**3
    """Maximum bytes of the files of a workspace's version."""
    files_workspace_files: Annotated[int, Field(ge=1, le=MAX_FILES)] = 20_000
    """Maximum files of a workspace's version."""
    files_file_bytes: Annotated[int, Field(ge=1024)] = 256 * 1024**2
    """Maximum bytes of a file in a workspace."""
    files_owner_workspaces: Annotated[int, Field(ge=1, le=MAX_LISTED_WORKSPACES)] = 100
    """Maximum workspaces of an owner."""
    files_owner_bytes: Annotated[int, Field(ge=1024)] = 10 * 1024**3
    """Maximum bytes of an owner's objects, older versions and artifacts included."""
    files_namespace_bytes: Annotated[int, Field(ge=1024)] = 50 * 1024**3
    """Maximum bytes of the objects of all owners in a namespace."""
    files_workspace_ttl_seconds: Annotated[int, Field(ge=3600)] = 30 * 24 * 3600
    """Seconds from a workspace's last use to its deletion."""
    files_artifact_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024**2
    """Maximum bytes of an artifact."""
    files_artifact_ttl_seconds: Annotated[int, Field(ge=60)] = 7 * 24 * 3600
    """Seconds until an artifact is deleted."""
    port: Annotated[int, Field(ge=0, le=65535)] = BROKER_PORT
    """Port for calls from sandboxes."""
    control_port: Annotated[int, Field(ge=0, le=65535)] = BROKER_CONTROL_PORT
    """Port for requests of operator and gateway, health and metrics."""
    replica: str = ""
    """Uid of this pod: grants for other replicas are refused. Empty in tests: grants of any replica are accepted."""
    check_pod_address: bool = True
    """Whether a grant is accepted only from the address of its sandbox."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 17 * 1024 * 1024
    """Maximum body of a call in bytes; each ToolServer limits its arguments as well."""
    peer_connections: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Open connections of each port and address. A sandbox needs ten for each event loop of its code."""
    max_calls: Annotated[int, Field(ge=1)] = 1024
    """Concurrent calls of all executions; more are denied."""
    max_connections: Annotated[int, Field(ge=1)] = 256
    """Open connections for single users; the least recently used is closed first."""
    allowed_addresses: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = ()
    """Networks of MCP servers and token endpoints, as a comma-separated list. The broker connects to them even if they
    are loopback, link-local, unspecified, multicast, a cloud's metadata service, the API server or a part of the
    release."""
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
    shutdown_seconds: Annotated[float, Field(ge=0, le=600)] = 10
    """Seconds after that while executions that have made calls may make more, and end."""

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
