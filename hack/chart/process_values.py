"""Values of CRDs, images and monitoring, of the operator and of the gateway."""

from typing import Annotated, Literal

from pydantic import Field
from workload_values import Amount, Cidr, ImageValues, Name, OptionalName, Port, Seconds, WorkloadValues

from mcp_exec_api.constants import GATEWAY_AUDIENCE, GATEWAY_METRICS_PORT, MAX_TIMEOUT_SECONDS
from mcp_exec_api.meta import Model, ToolPattern, UserPattern


class CrdsValues(Model):
    """The CustomResourceDefinitions in `crds/`. Helm installs and never changes or removes them."""

    upgrade: bool = True
    """The operator upgrades them to its version when it starts. It leaves those of a newer version as they are."""


class ImagesValues(Model):
    """Where all images come from."""

    repository: Annotated[str, Field(min_length=1, pattern=r"^[^\s@]+[^\s@/]$")] = "localhost"
    """The part of the images' names before `/mcp-exec-NAME`, for example `registry.example.com/team`."""
    tag: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")] = ""
    """Image tag. Empty means the chart's `appVersion`."""


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
    sandbox_users: Literal["Random", "Cluster"] = "Random"
    """User IDs of sandboxes. Random: each has its own. Cluster: the cluster assigns those of sandboxes and stdio
    servers, as OpenShift's restricted-v2 does. With runc, `maxProcesses` then counts the processes of all sandboxes
    of the namespace on a node."""
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
    max_timeout_seconds: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_SECONDS)] | None = None
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
    """Namespace for its callers' code. Empty means the first of `namespaces` when the key is created."""
    valid_days: Annotated[int, Field(ge=0, le=36_500)] = 90
    """Days from its creation until the key is refused; 0 means never. As `namespace`, `limits` and `approver`, it
    applies when the key is created. To get a new key, delete the Secret `<release>-initial-api-key`: the operator makes
    another within a minute, and the old one is refused."""
    limits: KeyLimitsValues = KeyLimitsValues(
        max_concurrent=50,
        max_stored=1000,
        max_stored_bytes=128 * 1024 * 1024,
        requests_per_minute=600,
        direct_calls_per_minute=600,
        max_waits=200,
        max_streams=50,
        max_sessions=10,
        max_workspaces=20,
        max_timeout_seconds=900,
        max_priority="Normal",
    )
    """Limits of the key. It may use all pools and tools of its namespace, on behalf of every user, unless `pools`,
    `tools` and `users` are set."""
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


class TargetsValues(Model):
    """Targets of the service, each with an alert. 0 means that there is none."""

    seconds: Annotated[float, Field(ge=0, le=86_400)] = 0
    """Seconds that 95 % of the executions may take, from their creation to their end, for example 2."""
    failures: Annotated[float, Field(ge=0, le=1)] = 0
    """Share of executions that may fail or time out, by their code or the platform, for example 0.01."""


class RulesValues(Model):
    """A PrometheusRule of the Prometheus operator, with recording rules and alerts."""

    enabled: bool = False
    """Create it."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that your Prometheus selects PrometheusRules by."""
    runbooks: Annotated[str, Field(max_length=512, pattern=r"^[^\s#\"]+$")] = "docs/platform/runbooks.md"
    """Address of the page of runbooks in links of alerts, for example that of this checkout at your Git server."""
    targets: TargetsValues = TargetsValues()
    """Targets of the service."""


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
    """Namespaces whose pods may reach the metrics, in addition to `networkPolicy.metricsFrom`. They are closed without
    either."""
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


class AutoscalingValues(Model):
    """A HorizontalPodAutoscaler of the gateway. It needs Kubernetes 1.23 or later and the metrics server."""

    enabled: bool = False
    """Create it. `gateway.replicas` then has no effect."""
    min_replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """Lowest number of pods."""
    max_replicas: Annotated[int, Field(ge=1, le=100)] = 10
    """Highest number of pods."""
    cpu: Amount = "500m"
    """CPU cores that each pod uses on average. More pods are added above it. It does not depend on the request."""


class GatewayValues(WorkloadValues):
    """The gateway serves the HTTP API."""

    image: ImageValues = ImageValues()
    """Image of the gateway."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of pods. Two or more are spread over the nodes, and a PodDisruptionBudget keeps all but one."""
    autoscaling: AutoscalingValues = AutoscalingValues()
    """Autoscaling of the number of pods, by a HorizontalPodAutoscaler."""
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
