"""Types, defaults and meanings of the chart's values. values.yaml, its schema and its table are generated from here."""

from typing import Annotated, Literal

from pydantic import Field

from mcp_exec_api.constants import DEFAULT_MAX_STORED, DEFAULT_MAX_STORED_BYTES, GATEWAY_AUDIENCE, GATEWAY_METRICS_PORT
from mcp_exec_api.meta import Model, ToolPattern, UserPattern
from mcp_exec_api.sandbox_pool import (
    FreeObject,
    ImagePullSecret,
    ModuleName,
    ResourceList,
    Resources,
    SandboxPoolSpec,
    Toleration,
    Warm,
)
from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_api.wire.workspaces import MAX_FILES, MAX_LISTED_WORKSPACES
from mcp_exec_common.usage import PriceTable

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
RuntimeName = Annotated[str, Field(max_length=253, pattern=r"^(NodeDefault|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$")]
OptionalName = Annotated[str, Field(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
Amount = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")] | Annotated[int, Field(ge=0)]
Seconds = Annotated[int, Field(ge=1, le=3600)]
Port = Annotated[int, Field(ge=1, le=65535)]
Cidr = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
Peers = Annotated[list[FreeObject], Field(max_length=64)]


class CrdsValues(Model):
    """The CustomResourceDefinitions of CodeExecution, SandboxPool, SandboxSession, Skill and ToolServer. Helm installs
    and never removes them."""

    upgrade: bool = True
    """Run a Job that upgrades the CRDs to this chart's version. Only one release in a cluster needs it."""


class ImagesValues(Model):
    """Where all images come from."""

    repository: Annotated[str, Field(min_length=1, pattern=r"^[^\s@]+[^\s@/]$")] = "localhost"
    """The part of the images' names before `/mcp-exec-NAME`, for example `registry.example.com/team`."""
    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")] = "dev"
    """Image tag."""


class ImageValues(Model):
    """A container image."""

    repository: Annotated[str, Field(pattern=r"^[^\s@]*$")] = ""
    """Image name without the tag. Empty means `mcp-exec-NAME` in `images.repository`."""
    tag: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")] = ""
    """Image tag. Empty means `images.tag`."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the image."""


class AmountsValues(Model):
    """CPU and memory of a container."""

    cpu: Amount = "50m"
    """CPU cores, for example `1` or `250m`."""
    memory: Amount = "128Mi"
    """Bytes, for example `512Mi`."""


class LimitsValues(Model):
    """Limits of a container. No CPU limit by default, because throttling would slow every execution."""

    cpu: Amount | None = None
    """CPU cores, for example `1` or `250m`."""
    memory: Amount = "512Mi"
    """Bytes, for example `512Mi`."""


class ResourcesValues(Model):
    """Requests and limits of a container."""

    requests: AmountsValues = AmountsValues()
    """Amounts that the scheduler reserves."""
    limits: LimitsValues = LimitsValues()
    """Amounts that the container cannot exceed."""


class EnvVarValues(Model):
    """An environment variable, as in a PodSpec."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: str | None = None
    """Value of the variable."""
    value_from: FreeObject | None = None
    """Source of the value."""


class WorkloadValues(Model):
    """Values that operator, gateway and broker share."""

    resources: ResourcesValues = ResourcesValues()
    """Requests and limits of the container."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have to run the pods."""
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(default_factory=list)
    """Taints that the pods tolerate."""
    affinity: FreeObject = Field(default_factory=dict)
    """Affinity, as in a PodSpec."""
    priority_class_name: OptionalName = ""
    """PriorityClass of the pods. Empty means the cluster's default."""
    pod_labels: dict[str, str] = Field(default_factory=dict)
    """Additional labels of the pods."""
    pod_annotations: dict[str, str] = Field(default_factory=dict)
    """Additional annotations of the pods."""
    service_account_annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the ServiceAccount."""
    extra_env: Annotated[list[EnvVarValues], Field(max_length=64)] = Field(default_factory=list)
    """Additional environment variables, for example SSL_CERT_FILE."""


class LeaderElectionValues(Model):
    """Leader election. A standby takes over at most one lease duration plus one retry period after the last renewal."""

    lease_duration_seconds: Annotated[int, Field(ge=2, le=300)] = 15
    """Seconds without a renewal until a standby takes over."""
    renew_deadline_seconds: Annotated[int, Field(ge=2, le=300)] = 10
    """Seconds without a renewal until the leader exits. Must be less than `leaseDurationSeconds`."""
    retry_period_seconds: Annotated[int, Field(ge=1, le=60)] = 2
    """Seconds between two renewals, and between two checks of a standby. Must be less than `renewDeadlineSeconds`."""


class SessionsValues(Model):
    """Bounds of sessions. Each session keeps a pod of its pool."""

    max_per_owner: Annotated[int, Field(ge=0, le=10_000)] = 16
    """Sessions of one caller and user in a namespace. All who use the Kubernetes API without a user are one owner."""
    max_per_namespace: Annotated[int, Field(ge=0, le=10_000)] = 200
    """Sessions in a namespace."""


class OperatorValues(WorkloadValues):
    """The operator binds executions to pods and keeps the pools warm."""

    image: ImageValues = ImageValues()
    """Image of the operator."""
    replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Number of pods. One is the leader; the standbys are spread over the nodes."""
    leader_election: LeaderElectionValues = LeaderElectionValues()
    """Leader election."""
    bind_timeout_seconds: Seconds = 60
    """Seconds that a pending execution waits while its pool binds no pod. Then it fails."""
    resync_seconds: Seconds = 20
    """Seconds between two resyncs, which compare all caches of the operator with fresh lists."""
    max_ttl_seconds: Annotated[int, Field(ge=0, le=30 * 24 * 3600)] = 7 * 24 * 3600
    """Longest time in seconds from an execution's end to its deletion. A longer `ttlSecondsAfterFinished` has no
    effect."""
    sessions: SessionsValues = SessionsValues()
    """Bounds of sessions."""
    pod_start_timeout_seconds: Seconds = 120
    """Seconds until a sandbox pod that is not ready is replaced."""
    watch_nodes: bool = True
    """Watch the cluster's nodes, to move idle pods off cordoned nodes and to end runs on lost nodes at once."""
    verify_isolation: bool = True
    """Require each sandbox to confirm that its NetworkPolicy blocks the API server: before it is used, and each second
    as long as it exists."""
    template_prefixes: list[str] = []
    """Prefixes that labels and annotations of a pool's template may have, for example `cost.example.com`. Keys without
    prefix and dots are allowed."""


class ServiceValues(Model):
    """The gateway's Service."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service. The gateway speaks HTTP; terminate TLS at an Ingress or a load balancer."""
    port: Port = 80
    """Port of the Service."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations, for example those of a cloud's load balancer."""


class ApiKeysValues(Model):
    """The Secret with the hashed API keys of the gateway."""

    existing_secret: OptionalName = ""
    """Secret of the release's namespace to use instead of `<release>-api-keys`. Empty: the operator creates that."""


class KeyLimitsValues(Model):
    """Limits of an API key."""

    max_concurrent: Annotated[int, Field(ge=1)] | None = None
    """Executions at the same time."""
    max_stored: Annotated[int, Field(ge=1)] | None = None
    """Stored executions, finished ones included until they are deleted."""
    max_stored_bytes: Annotated[int, Field(ge=1)] | None = None
    """Bytes of its stored executions."""
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Requests of every kind, to each replica of the gateway."""
    direct_calls_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Tool calls without an execution, by MCP clients, at each replica of the broker."""
    max_waits: Annotated[int, Field(ge=1)] | None = None
    """Requests that wait for an execution at the same time, at each replica of the gateway."""
    max_streams: Annotated[int, Field(ge=1)] | None = None
    """Event streams that are open at the same time, at each replica of the gateway."""
    max_sessions: Annotated[int, Field(ge=0)] | None = None
    """Sessions that have a pod or will get one."""
    max_workspaces: Annotated[int, Field(ge=0)] | None = None
    """Workspaces of each user, at most those that the broker's limits allow."""
    max_timeout_seconds: Annotated[int, Field(ge=1, le=300)] | None = None
    """Maximum `timeoutSeconds`."""
    pools: list[Name] | None = None
    """Pools that the key may use."""
    max_priority: Literal["High", "Normal", "Low"] | None = None
    """Highest `priority`."""
    tools: Annotated[list[ToolPattern], Field(max_length=256)] | None = None
    """Tools that executions may name and searches return, for example `github.*`. An empty list means none."""
    users: Annotated[list[UserPattern], Field(max_length=256)] | None = None
    """Users that executions may name, for example `team-a/*`. An empty list means none."""
    own: bool | None = None
    """Let the key see, cancel, delete and approve only executions of its own. True by default if `users` is set."""


class InitialApiKeyValues(Model):
    """A first API key, named `initial`, which the operator creates. Its text is in `<release>-initial-api-key`."""

    create: bool = True
    """Create the key. If false, the operator revokes and removes one that it has created."""
    namespace: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")] = ""
    """Namespace for its callers' code. Empty means the first of `namespaces`."""
    valid_days: Annotated[int, Field(ge=0, le=36_500)] = 90
    """Days from its creation until the key is refused; 0 means never. As `namespace`, `limits` and `approver`, it
    applies when the key is created. To get a new key, delete the Secret `<release>-initial-api-key`: the operator makes
    another within a minute, and the old one is refused."""
    limits: KeyLimitsValues = KeyLimitsValues(max_concurrent=50, requests_per_minute=600)
    """Limits of the key."""
    approver: bool = False
    """Allow its callers to decide on tool calls that wait for an approval, and on skills."""


class MetricsValues(Model):
    """Metrics for Prometheus."""

    enabled: bool = True
    """Serve `/metrics`."""


class ServiceMonitorValues(Model):
    """A ServiceMonitor of the Prometheus operator, and Services without addresses that it selects."""

    enabled: bool = False
    """Create them."""
    interval: Annotated[str, Field(pattern=r"^[1-9][0-9]*(ms|s|m)$")] = "30s"
    """Time between two scrapes."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that your Prometheus selects ServiceMonitors by, for example `release: prometheus`."""


class RulesValues(Model):
    """A PrometheusRule of the Prometheus operator, with recording rules and alerts."""

    enabled: bool = False
    """Create it."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that your Prometheus selects PrometheusRules by."""
    runbooks: Annotated[str, Field(max_length=512, pattern=r"^[^\s#\"]+$")] = "docs/platform/runbooks.md"
    """Address of the page of runbooks in links of alerts, for example that of this checkout at your Git server."""


class DashboardsValues(Model):
    """ConfigMaps with boards, for the sidecar of Grafana's chart."""

    enabled: bool = False
    """Create them."""
    namespace: OptionalName = ""
    """Namespace of the ConfigMaps. Empty means the release's. The sidecar must watch it."""
    labels: dict[str, str] = {"grafana_dashboard": "1"}
    """Labels that the sidecar selects ConfigMaps by."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations, for example `grafana_folder: mcp-exec`."""


class MonitoringValues(Model):
    """Objects for Prometheus and Grafana. All need `metrics.enabled`."""

    service_monitor: ServiceMonitorValues = ServiceMonitorValues()
    """A ServiceMonitor."""
    scrape_annotations: bool = False
    """Annotate the pods with `prometheus.io/scrape`, `port` and `path`, for a Prometheus that finds pods by these."""
    scraper_namespaces: Annotated[list[Name], Field(max_length=16)] = Field(default_factory=list)
    """Namespaces whose pods may reach the metrics, in addition to `networkPolicy.metricsFrom`. Those of gateway and
    broker are closed without either."""
    rules: RulesValues = RulesValues()
    """Recording rules and alerts."""
    dashboards: DashboardsValues = DashboardsValues()
    """Grafana boards."""


class McpValues(Model):
    """The endpoint `/mcp`."""

    allowed_origins: Annotated[
        list[Annotated[str, Field(pattern=r"^https?://[^,/]+$", max_length=261)]], Field(max_length=64)
    ] = Field(default_factory=list)
    """Origins of web pages that may use the endpoint, such as `https://ide.example`. Other clients send none."""
    allowed_hosts: Annotated[list[Annotated[str, Field(pattern=r"^[^,/]+$", max_length=261)]], Field(max_length=64)] = (
        Field(default_factory=list)
    )
    """Values of the Host header that the endpoint accepts, with the port if there is one. Empty means all."""


class GatewayValues(WorkloadValues):
    """The gateway serves the HTTP API."""

    image: ImageValues = ImageValues()
    """Image of the gateway."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of pods. Two or more are spread over the nodes, and a PodDisruptionBudget keeps all but one."""
    max_wait_seconds: Annotated[int, Field(ge=1, le=600)] = 310
    """Maximum `wait` of a request, in seconds. A terminating pod gets the same time to answer its callers."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=3 * 1024 * 1024)] = 1024 * 1024
    """Maximum bytes of a request body. The API server accepts objects of about 1.5 MiB."""
    max_connections_per_peer: Annotated[int, Field(ge=1, le=100_000)] = 4096
    """Maximum open connections of one address at each pod, of 8,192 in all. Each pod of an ingress is one address."""
    drain_seconds: Annotated[int, Field(ge=0, le=60)] = 5
    """Seconds that a terminating pod still accepts requests, until every node has removed it from the Service."""
    audience: Annotated[str, Field(min_length=1, max_length=512)] = GATEWAY_AUDIENCE
    """Audience that ServiceAccount tokens must have. The API server refuses tokens with only this audience, so nobody
    who sees one at the gateway can use it there."""
    max_waits_per_caller: Annotated[int, Field(ge=1, le=4096)] = 1024
    """Maximum requests of one caller that wait at the same time, at each replica. An API key may have another limit."""
    max_streams_per_caller: Annotated[int, Field(ge=1, le=512)] = 128
    """Maximum open event streams of one caller, at each replica. An API key may have another limit."""
    max_sessions_per_caller: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Maximum sessions of one caller that have a pod or will get one. An API key may have another limit."""
    public_url: Annotated[str, Field(pattern=r"^(https?://[^\s?#]+)?$")] = ""
    """Address of the gateway in links to artifacts, such as `https://gateway.example.com`. Empty means the address that
    the client reached it."""
    docs: bool = True
    """Serve the API's description at `/docs` and `/openapi.json`, without authentication. It is the same for all
    releases of this version and contains nothing of this one."""
    metrics_port: Annotated[int, Field(ge=1024, le=65535)] = GATEWAY_METRICS_PORT
    """Port of `/metrics`, which name namespaces and their spending without authentication. It is no part of the
    Service, and not 8080, the port of the API."""
    anonymous_requests_per_minute: Annotated[int, Field(ge=1)] = 300
    """Maximum rate of requests without valid credentials from one address, to each replica."""
    trusted_proxies: Annotated[list[Cidr], Field(max_length=64)] = Field(default_factory=list)
    """Networks of proxies whose X-Forwarded-For names the client. Empty means that the header is ignored."""
    mcp: McpValues = McpValues()
    """The endpoint `/mcp`."""
    service: ServiceValues = ServiceValues()
    """The Service."""
    api_keys: ApiKeysValues = ApiKeysValues()
    """The Secret with the hashed API keys."""
    initial_api_key: InitialApiKeyValues = InitialApiKeyValues()
    """A first API key."""


class AuditPersistenceValues(Model):
    """A volume for audit records that outlive the broker's pod. It limits the broker to one replica."""

    enabled: bool = False
    """Use a volume. If false, records are lost with the pod and only the log stream remains."""
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

    enabled: bool = False
    """Keep records. An execution is then deleted only after its record is stored."""
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
    multicast, a cloud's metadata service or the Service of the API server. All other addresses need no entry."""
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


class ServersValues(Model):
    """Image with the bridge for stdio servers and with the demo servers."""

    image: ImageValues = ImageValues()
    """Image of the servers."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets of the served namespaces with credentials of its registry, for the demo servers."""


class ToolServerValues(ToolServerSpec):
    """A ToolServer. Its fields are those of a ToolServer's spec."""

    namespaces: list[Name] = Field(default_factory=list)
    """Served namespaces that get it. Empty means all."""


class DemoServerValues(Model):
    """A demo server."""

    enabled: bool = False
    """Install the server in each served namespace."""


class DemoServersValues(Model):
    """Demo servers, to try tools without an account. Their data is invented."""

    calculator: DemoServerValues = DemoServerValues()
    """Arithmetic."""
    weather: DemoServerValues = DemoServerValues()
    """Weather of a few cities."""
    database: DemoServerValues = DemoServerValues()
    """SQL over a small SQLite database."""
    sheets: DemoServerValues = DemoServerValues()
    """Spreadsheets, one of them with 10,000 rows."""
    slack: DemoServerValues = DemoServerValues()
    """The history of a few channels."""
    expenses: DemoServerValues = DemoServerValues()
    """Expenses of a few people."""
    trips: DemoServerValues = DemoServerValues()
    """Camper trips: routes, places to stay and bookings."""


class SandboxKeyValues(Model):
    """Key that operator and gateway authenticate to sandboxes with."""

    existing_secret: OptionalName = ""
    """Secret of the release's namespace with the entry `key`, 32 bytes or more. Empty: the operator creates one."""


class PoolValues(SandboxPoolSpec):
    """A SandboxPool."""

    name: Name = "default"
    """Name of the pool."""
    image: Annotated[str, Field(max_length=512)] = ""
    """Sandbox image with its tag or digest. Empty means `mcp-exec-sandbox:TAG` of `images`."""
    runtime_class_name: RuntimeName | None = None
    """RuntimeClass, for example of gVisor or Kata, or `NodeDefault` for the node's default runtime. Required."""
    priority_class_name: OptionalName = ""
    """PriorityClass of the pods. Empty means the cluster's default."""


class DefaultPoolValues(PoolValues):
    """The default pool, one in each served namespace. Its fields are those of a SandboxPool's spec."""

    enabled: bool = True
    """Create it."""


class ExtraPoolValues(PoolValues):
    """An additional pool. A field that is not set is as in `pool`; a field that is set replaces it as a whole."""

    name: Name
    """Name of the pool."""
    namespaces: list[Name] = Field(default_factory=list)
    """Served namespaces that get it. Empty means all."""


class SkillsValues(Model):
    """Skills: reusable code that sandboxes import."""

    shipped: bool = True
    """Bring the skills of the project, approved, into each served namespace. An upgrade replaces them, and false or an
    uninstallation deletes them."""
    self_approval: bool = False
    """Let approvers approve skills that they saved themselves."""


class DataPoolValues(Model):
    """A pool `data` of sandboxes with numpy, pandas, polars, pyarrow, scipy, matplotlib, openpyxl and pillow, in each
    served namespace. Its other fields are as in `pool`."""

    enabled: bool = False
    """Create it. Its image is built by `make data-image` and is no part of `make images`."""
    image: Annotated[str, Field(max_length=512)] = ""
    """Sandbox image with its tag or digest. Empty means `mcp-exec-data:TAG` of `images`."""
    warm: Warm = Warm(min=1)
    """Number of warm pods."""
    resources: Resources = Resources(
        limits=ResourceList(cpu="1", memory="1280Mi", ephemeral_storage="512Mi"),
        requests=ResourceList(cpu="50m", memory="256Mi", ephemeral_storage="64Mi"),
    )
    """Resource limits and requests of each sandbox."""
    preimport: Annotated[list[ModuleName], Field(max_length=32)] = ["numpy", "pandas"]
    """Modules that each sandbox imports before it is warm."""


class QuotaValues(Model):
    """A ResourceQuota of each served namespace."""

    enabled: bool = True
    """Create it."""
    hard: dict[str, Amount] = {"pods": 200, "limits.cpu": 200, "limits.memory": "150Gi"}
    """Limits by resource, also `count/toolservers.mcp-exec.dev` and `count/codeexecutions.mcp-exec.dev`. The count of
    CodeExecutions includes finished ones until they are deleted. `maxStored` and `maxStoredBytes` bound what the
    gateway creates; a count also bounds those who create executions by the Kubernetes API. 2,000 executions take 10 MB
    of etcd if they are of ordinary size, and 2.8 GB at maximal size, which is more than etcd's default quota of 2 GiB.
    It is not set by default, because for some minutes after a first installation Kubernetes does not count the new
    kind, and refuses each creation."""


class BoundsValues(Model):
    """CPU and memory."""

    cpu: Amount
    """CPU cores."""
    memory: Amount
    """Bytes."""


class LimitRangeValues(Model):
    """A LimitRange of each served namespace, for each container."""

    enabled: bool = True
    """Create it."""
    default: BoundsValues = BoundsValues(cpu="1", memory="512Mi")
    """Limits of a container that sets none."""
    default_request: BoundsValues = BoundsValues(cpu="50m", memory="64Mi")
    """Requests of a container that sets none."""
    max: BoundsValues = BoundsValues(cpu="4", memory="8Gi")
    """Highest limits that a container may set."""


class ApiServerValues(Model):
    """Addresses and ports of the Kubernetes API server."""

    cidrs: list[Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[1-9][0-9]{0,2}$")]] = Field(default_factory=list)
    """Networks of its Service and EndpointSlice, for example `10.0.0.1/32`. Empty means those that Helm finds."""
    ports: Annotated[list[Port], Field(min_length=1)] = [443, 6443]
    """Ports at `cidrs`: of its Service and of the server itself."""


class NetworkPoliciesValues(Model):
    """NetworkPolicies. The operator manages those of the pools; they cannot be disabled."""

    enabled: bool = True
    """Create the NetworkPolicies of operator, gateway and sandboxes."""
    gateway_from: Peers = Field(default_factory=list)
    """Peers that may reach the gateway, as in a NetworkPolicy. Empty means all. Kubelets always may."""
    metrics_from: Peers = Field(default_factory=list)
    """Peers that may reach the metrics of operator, broker and gateway. Empty: all for the operator, none for the
    others."""
    broker_to: Peers = Field(default_factory=list)
    """Peers that the broker may reach besides stdio servers: MCP servers, token endpoints, DNS. Empty: all."""
    api_server: ApiServerValues = ApiServerValues()
    """The Kubernetes API server: with the sandboxes, all that operator and gateway may reach."""


class AdmissionPolicyValues(Model):
    """ValidatingAdmissionPolicies for the served namespaces."""

    enabled: bool = True
    """Create them if the cluster is Kubernetes 1.30 or later. One limits which Secrets the operator creates."""
    trusted_users: Annotated[list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    """Usernames that may state callers and approvers of executions, as the gateway does."""
    own_user_only: bool = False
    """Require that `spec.user` of an execution that was not created by the gateway is its creator's username."""
    isolation: bool = True
    """Refuse pods that pose as sandboxes, changes of sandboxes, and NetworkPolicies that could open sandboxes."""


class Values(Model):
    """All values of the chart."""

    fullname_override: Annotated[str, Field(max_length=40, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")] = ""
    """Prefix of the objects' names. Empty means the release's name, with `-mcp-exec` appended if the name lacks it."""
    crds: CrdsValues = CrdsValues()
    """The CustomResourceDefinitions."""
    namespaces: Annotated[list[Name], Field(min_length=1, max_length=100, json_schema_extra={"uniqueItems": True})] = [
        "agents"
    ]
    """Namespaces for executions. Operator and gateway have rights only in these."""
    create_namespaces: bool = True
    """Create the namespaces. They and their contents remain after `helm uninstall`."""
    namespace_labels: dict[str, str] = Field(default_factory=dict)
    """Additional labels of the namespaces that the chart creates."""
    pod_security: Literal["restricted", "baseline", "privileged"] = "restricted"
    """Pod Security level that is enforced in the namespaces that the chart creates."""
    aggregate_roles: bool = False
    """Add the ClusterRoles `<release>-viewer`, `-caller` and `-manager` to Kubernetes' `view`, `edit` and `admin`."""
    metrics: MetricsValues = MetricsValues()
    """Metrics of operator, gateway and broker."""
    monitoring: MonitoringValues = MonitoringValues()
    """Objects for Prometheus and Grafana."""
    prices: PriceTable = PriceTable()
    """Prices of models and sandboxes, to show usage as money."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Log level of operator, gateway and broker."""
    images: ImagesValues = ImagesValues()
    """Where all images come from."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets of the release's namespace with registry credentials for operator, gateway and broker."""
    max_stored: Annotated[int, Field(ge=1, le=1_000_000)] = DEFAULT_MAX_STORED
    """Executions that each namespace may store. Finished ones count until they are deleted. If finished ones take more
    than three quarters of it, the oldest are deleted before their TTL; beyond it, the gateway refuses new ones."""
    max_stored_bytes: Annotated[int, Field(ge=1024 * 1024)] = DEFAULT_MAX_STORED_BYTES
    """Bytes that the executions of each namespace may take in etcd, by the same rule. The sum of all namespaces must be
    less than etcd's quota, which is 2 GiB by default."""
    operator: OperatorValues = OperatorValues()
    """The operator."""
    gateway: GatewayValues = GatewayValues()
    """The gateway."""
    broker: BrokerValues = BrokerValues()
    """The broker."""
    servers: ServersValues = ServersValues()
    """Image with the bridge for stdio servers and with the demo servers."""
    tool_servers: dict[Name, ToolServerValues] = Field(default_factory=dict)
    """ToolServers by name. Code calls them by these names."""
    demo_servers: DemoServersValues = DemoServersValues()
    """Demo servers."""
    sandbox_key: SandboxKeyValues = SandboxKeyValues()
    """Key that operator and gateway authenticate to sandboxes with."""
    pool: DefaultPoolValues = DefaultPoolValues()
    """The default pool."""
    extra_pools: Annotated[list[ExtraPoolValues], Field(max_length=100)] = Field(default_factory=list)
    """Additional pools: each has a name and the fields that differ from `pool`."""
    data_pool: DataPoolValues = DataPoolValues()
    """A pool with libraries for data, off by default."""
    skills: SkillsValues = SkillsValues()
    """Skills."""
    quota: QuotaValues = QuotaValues()
    """A ResourceQuota of each served namespace, for sandboxes and stdio servers together."""
    limit_range: LimitRangeValues = LimitRangeValues()
    """A LimitRange of each served namespace."""
    admission_policy: AdmissionPolicyValues = AdmissionPolicyValues()
    """ValidatingAdmissionPolicies for the served namespaces. They bind every account, also administrators."""
    network_policy: NetworkPoliciesValues = NetworkPoliciesValues()
    """NetworkPolicies."""
