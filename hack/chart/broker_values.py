"""Values of the broker, its audit log, files and records, but for those that its settings declare."""

from typing import Annotated, Literal

from hack.chart.workload_values import (
    AmountsValues,
    ImageValues,
    OptionalName,
    ResourcesValues,
    SettingsValues,
    Size,
    WorkloadValues,
)
from pydantic import Field

from mcp_exec_api.meta import Model


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

    size: Size = "1Gi"
    """Size of the volume that holds the records."""
    persistence: AuditPersistenceValues = AuditPersistenceValues()
    """A volume for records that outlive the broker's pod."""


class FilesVolumeValues(Model):
    """A volume for workspaces and artifacts. It limits the broker to one replica."""

    size: Size = "10Gi"
    """Size of the volume."""
    existing_claim: OptionalName = ""
    """PersistentVolumeClaim of the release's namespace. Empty means that the chart creates and keeps one."""
    storage_class: str = ""
    """StorageClass of the claim. Empty means the cluster's default."""
    temporary: bool = False
    """Use an emptyDir: all files are lost with the broker's pod. For tests only."""


class FilesS3Values(Model):
    """A bucket of S3, or of a service that supports conditional writes (If-None-Match), instead of a volume."""

    credentials_secret: OptionalName = ""
    """Secret of the release's namespace with the entries `accessKeyId` and `secretAccessKey`. Empty means the
    credentials of the pod or node, such as those of `serviceAccountAnnotations`."""


class FilesValues(Model):
    """Workspaces and artifacts: files that outlive a run."""

    enabled: bool = False
    """Store files. Without it, executions that name a workspace fail, and artifacts are not kept."""
    volume: FilesVolumeValues = FilesVolumeValues()
    """A volume."""
    s3: FilesS3Values = FilesS3Values()
    """A bucket instead of a volume."""
    limits: SettingsValues = SettingsValues()
    """Quotas and lifetimes."""


class RecordsVolumeValues(Model):
    """A volume for the SQLite file of the records. It limits the broker to one replica."""

    size: Size = "2Gi"
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
    resources: ResourcesValues = ResourcesValues(requests=AmountsValues(memory="320Mi"))
    """Requests and limits of the container."""
    replicas: Annotated[int, Field(ge=1, le=20)] = 1
    """Number of pods. Each execution calls one of them, and does not outlive it."""
    audit: AuditValues = AuditValues()
    """Audit records of tool calls."""
    files: FilesValues = FilesValues()
    """Workspaces and artifacts."""
    records: RecordsValues = RecordsValues()
    """Records of what was run and used."""
