"""Values of the broker: its audit log, its files and its records."""

from typing import Annotated, Literal

from pydantic import Field
from workload_values import Cidr, ImageValues, OptionalName, WorkloadValues

from mcp_exec_api.meta import Model
from mcp_exec_api.wire.workspaces import MAX_FILES, MAX_LISTED_WORKSPACES


class AuditPersistenceValues(Model):
    """A volume for audit records that outlive the broker's pod. It limits the broker to one replica."""

    enabled: Literal["auto", True, False] = "auto"
    """Use a volume: `auto` if the broker has one replica. If false, records are lost with the pod and only the log
    stream remains."""
    existing_claim: OptionalName = ""
    """PersistentVolumeClaim of the release's namespace. Empty means that the chart creates and keeps one."""
    storage_class: str = ""
    """StorageClass of the claim. Empty means the cluster's default."""


class AuditValues(Model):
    """Audit records of tool calls."""

    size: Annotated[str, Field(pattern=r"^[0-9]+(Ki|Mi|Gi|Ti)$")] = "1Gi"
    """Size of the volume that holds the records."""
    keep_bytes: Annotated[int, Field(ge=1024 * 1024)] = 768 * 1024 * 1024
    """Maximum bytes of records, at least 256 MiB less than `size`. The oldest records are deleted first."""
    keep_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days that records are kept."""
    persistence: AuditPersistenceValues = AuditPersistenceValues()
    """A volume for records that outlive the broker's pod."""


class FilesVolumeValues(Model):
    """A volume for workspaces and artifacts. It limits the broker to one replica."""

    size: Annotated[str, Field(pattern=r"^[0-9]+(Ki|Mi|Gi|Ti)$")] = "10Gi"
    """Size of the volume."""
    existing_claim: OptionalName = ""
    """PersistentVolumeClaim of the release's namespace. Empty means that the chart creates and keeps one."""
    storage_class: str = ""
    """StorageClass of the claim. Empty means the cluster's default."""
    temporary: bool = False
    """Use an emptyDir: all files are lost with the broker's pod. For tests only."""


class FilesS3Values(Model):
    """A bucket of S3, or of a service that supports conditional writes (If-None-Match), instead of a volume."""

    bucket: Annotated[str, Field(pattern=r"^([a-z0-9][-a-z0-9.]{1,61}[a-z0-9])?$")] = ""
    """Name of the bucket. Empty means a volume."""
    prefix: Annotated[str, Field(pattern=r"^([A-Za-z0-9][-A-Za-z0-9._/]{0,200})?$")] = ""
    """Prefix of all keys."""
    endpoint: Annotated[str, Field(pattern=r"^(https?://[^/]+)?$")] = ""
    """URL of the service. Empty means AWS."""
    region: Annotated[str, Field(pattern=r"^[-a-z0-9]{0,64}$")] = ""
    """Region of the bucket. Empty means us-east-1."""
    credentials_secret: OptionalName = ""
    """Secret of the release's namespace with the entries `accessKeyId` and `secretAccessKey`. Empty means the
    credentials of the pod or node, such as those of `serviceAccountAnnotations`."""


class FilesLimitsValues(Model):
    """Quotas and lifetimes of files."""

    workspace_bytes: Annotated[int, Field(ge=1024)] = 1024**3
    """Maximum bytes of a workspace's files."""
    workspace_files: Annotated[int, Field(ge=1, le=MAX_FILES)] = 20_000
    """Maximum files of a workspace."""
    file_bytes: Annotated[int, Field(ge=1024)] = 256 * 1024**2
    """Maximum bytes of one file."""
    owner_workspaces: Annotated[int, Field(ge=1, le=MAX_LISTED_WORKSPACES)] = 100
    """Maximum workspaces of one owner."""
    owner_bytes: Annotated[int, Field(ge=1024)] = 10 * 1024**3
    """Maximum bytes that one owner stores, with older versions and artifacts."""
    namespace_bytes: Annotated[int, Field(ge=1024)] = 50 * 1024**3
    """Maximum bytes that all owners of a namespace store."""
    workspace_ttl_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days after its last use until a workspace is deleted, unless it has a value of its own."""
    artifact_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024**2
    """Maximum bytes of one artifact."""
    artifact_ttl_days: Annotated[int, Field(ge=1, le=3650)] = 7
    """Days until an artifact is deleted."""


class FilesValues(Model):
    """Workspaces and artifacts: files that outlive a run."""

    enabled: bool = False
    """Store files. Without it, executions that name a workspace fail, and artifacts are not kept."""
    volume: FilesVolumeValues = FilesVolumeValues()
    """A volume."""
    s3: FilesS3Values = FilesS3Values()
    """A bucket instead of a volume."""
    limits: FilesLimitsValues = FilesLimitsValues()
    """Quotas and lifetimes."""


class RecordsVolumeValues(Model):
    """A volume for the SQLite file of the records. It limits the broker to one replica."""

    size: Annotated[str, Field(pattern=r"^[0-9]+(Ki|Mi|Gi|Ti)$")] = "2Gi"
    """Size of the volume."""
    existing_claim: OptionalName = ""
    """PersistentVolumeClaim of the release's namespace. Empty means that the chart creates and keeps one."""
    storage_class: str = ""
    """StorageClass of the claim. Empty means the cluster's default."""
    temporary: bool = False
    """Use an emptyDir: all records are lost with the broker's pod. For tests only."""


class RecordsDatabaseValues(Model):
    """A database of PostgreSQL 12 or later, which several replicas of the broker can share."""

    secret: OptionalName = ""
    """Secret of the release's namespace with the entry `url`: postgresql://USER:PASSWORD@HOST/DATABASE. Empty means
    SQLite on the volume."""


class RecordsValues(Model):
    """Records: a durable row for each execution, tool call, report of model usage and rating."""

    enabled: Literal["auto", True, False] = "auto"
    """Keep records: `auto` if the broker has one replica, or a database. An execution is then deleted only after its
    record is stored."""
    code: Literal["Never", "Digest", "Full"] = "Digest"
    """What the record of an execution keeps of its code: nothing, its SHA-256 digest, or all of it."""
    keep_days: Annotated[int, Field(ge=1, le=3650)] = 90
    """Days that records are kept."""
    keep_bytes: Annotated[int, Field(ge=1024 * 1024)] = 1024**3
    """Maximum bytes of the SQLite file's records, at least 256 MiB less than the volume. The oldest of the namespace
    that uses most are deleted first."""
    volume: RecordsVolumeValues = RecordsVolumeValues()
    """A volume for SQLite."""
    database: RecordsDatabaseValues = RecordsDatabaseValues()
    """A database instead of the volume."""


class BrokerValues(WorkloadValues):
    """The broker makes all tool calls of sandboxes and holds all credentials of MCP servers."""

    enabled: bool = True
    """Install the broker. Without it, executions that name tools are rejected."""
    image: ImageValues = ImageValues()
    """Image of the broker."""
    replicas: Annotated[int, Field(ge=1, le=20)] = 1
    """Number of pods. Each execution calls one of them, and does not outlive it."""
    check_pod_address: bool = True
    """Accept a grant only from the address of its sandbox. Disable it if the network translates the source addresses of
    connections between pods."""
    allowed_addresses: Annotated[list[Cidr], Field(max_length=64)] = Field(default_factory=list)
    """Networks that the broker connects to for a ToolServer although they are loopback, link-local, unspecified,
    multicast, a cloud's metadata service, the Service of the API server, or a part of the release. All other addresses
    need no entry."""
    max_calls: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Maximum concurrent calls in each pod. More are denied."""
    shutdown_seconds: Annotated[int, Field(ge=0, le=300)] = 10
    """Seconds that executions with tools have to end when a pod terminates. No other pod accepts their calls."""
    audit: AuditValues = AuditValues()
    """Audit records of tool calls."""
    files: FilesValues = FilesValues()
    """Workspaces and artifacts."""
    records: RecordsValues = RecordsValues()
    """Records of what was run and used."""
