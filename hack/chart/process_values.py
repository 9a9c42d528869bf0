"""Values of images and monitoring, of the operator and of the gateway, but for those that their settings declare."""

from typing import Annotated, Literal

from hack.chart.workload_values import (
    Amount,
    Digest,
    ImageValues,
    Name,
    OptionalName,
    Port,
    SettingsValues,
    Tag,
    WorkloadValues,
)
from pydantic import Field

from mcp_exec_api.meta import REPOSITORY, Model
from mcp_exec_api.sandbox_pool import FreeObject
from mcp_exec_operator.settings import InitialApiKey


class DigestsValues(Model):
    """Digests of images, such as `sha256:...`, by which they are pulled whatever their tag is."""

    sandbox: Digest = ""
    """Digest of `mcp-exec-sandbox`."""
    operator: Digest = ""
    """Digest of `mcp-exec-operator`."""
    gateway: Digest = ""
    """Digest of `mcp-exec-gateway`."""
    broker: Digest = ""
    """Digest of `mcp-exec-broker`."""
    servers: Digest = ""
    """Digest of `mcp-exec-servers`."""
    data: Digest = ""
    """Digest of `mcp-exec-data`."""


class ImagesValues(Model):
    """Where all images come from."""

    repository: Annotated[str, Field(pattern=rf"^{REPOSITORY}$")] = "localhost"
    """The part of the images' names before `/mcp-exec-NAME`, for example `registry.example.com/team`."""
    tag: Tag = ""
    """Image tag. Empty means the chart's `appVersion`, in a released chart by the digests of the release. Set it to
    pull by the tag, for example from a registry that changed the digests."""
    digests: DigestsValues = DigestsValues()
    """Digests of the images. An empty one means that of the release, if the tag and the image's own repository are
    empty. A pool's own `image` may contain its digest."""


class OperatorValues(WorkloadValues):
    """The operator binds executions to pods and keeps the pools warm."""

    image: ImageValues = ImageValues()
    """Image of the operator."""
    replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Number of pods. One is the leader; the standbys are spread over the nodes."""
    leader_election: SettingsValues = SettingsValues()
    """Leader election."""
    sessions: SettingsValues = SettingsValues()
    """Bounds of sessions."""


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


class InitialApiKeyValues(InitialApiKey):
    """A first API key, named `initial`, which the operator creates. Its text is in `<release>-initial-api-key`."""

    create: bool = True
    """Create the key. If false, the operator revokes and removes one that it has created."""


class ServiceMonitorValues(Model):
    """A ServiceMonitor of the Prometheus operator, and Services without addresses that it selects."""

    enabled: bool = False
    """Create them."""
    interval: Annotated[str, Field(pattern=r"^[1-9][0-9]*(ms|s|m)$")] = "30s"
    """Time between two scrapes."""
    scrape_timeout: Annotated[str, Field(pattern=r"^([1-9][0-9]*(ms|s|m))?$")] = ""
    """Time limit of a scrape. Empty means that of your Prometheus."""
    relabelings: Annotated[list[FreeObject], Field(max_length=32)] = Field(default_factory=list)
    """Further relabelings of the targets, as in a ServiceMonitor. The label `release` is set before them."""
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
    runbooks: Annotated[str, Field(max_length=512, pattern=r"^(https?://[^\s#\"]+|docs/platform/runbooks\.md)?$")] = ""
    """Address of the page docs/platform/runbooks.md in links of alerts and boards, such as
    `https://docs.example.com/docs/platform/runbooks.html`. Empty means that of the chart's first source, or no
    link if it has none. The path without a host, the default of earlier releases, counts as empty."""
    release: Annotated[str, Field(max_length=128, pattern=r"^[-a-z0-9._]*$")] = ""
    """Value of the label `release` of this release's series, which rules select by. Empty means that of the
    ServiceMonitor if there is one; without it, the rules look at the series of all releases."""
    disabled: Annotated[list[str], Field(max_length=64)] = Field(default_factory=list)
    """Names of alerts to leave out, for example because a PrometheusRule of your own has other limits."""
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
    mcp: SettingsValues = SettingsValues()
    """The endpoint `/mcp`."""
    service: ServiceValues = ServiceValues()
    """The Service."""
    api_keys: ApiKeysValues = ApiKeysValues()
    """The Secret with the hashed API keys."""
    initial_api_key: InitialApiKeyValues = InitialApiKeyValues()
    """A first API key."""
