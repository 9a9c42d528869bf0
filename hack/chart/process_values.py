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
from mcp_exec_common.access import AccessRule
from mcp_exec_operator.settings import InitialApiKey


class DigestsValues(Model):
    """Digests of images, such as `sha256:...`. An image with a digest is pulled by it; its tag is then ignored."""

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
    sandbox_typescript: Digest = ""
    """Digest of `mcp-exec-sandbox-typescript`."""


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
    """Type of the Service. The gateway speaks HTTP unless `gateway.tls.serve` is true."""
    port: Port = 80
    """Port of the Service."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations, for example those of a cloud's load balancer."""


class CertificateValues(Model):
    """A Certificate of cert-manager for `gateway.host`, in the Secret `gateway.tls.secret`."""

    create: bool = False
    """Create it. cert-manager has to be installed."""
    issuer: OptionalName = ""
    """Name of the issuer."""
    issuer_kind: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]{0,62}$")] = "ClusterIssuer"
    """Kind of the issuer: `Issuer` of the release's namespace, `ClusterIssuer`, or that of another group."""
    issuer_group: Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = "cert-manager.io"
    """API group of the issuer."""


class TlsValues(Model):
    """The certificate of the front door."""

    secret: OptionalName = ""
    """Secret of the release's namespace with `tls.crt` and `tls.key`. The Ingress has it, or the gateway itself."""
    serve: bool = False
    """Let the gateway serve TLS itself, at the port of the API and that of metrics. A changed Secret is in use for new
    connections within two minutes, without a restart."""
    certificate: CertificateValues = CertificateValues()
    """A Certificate of cert-manager, which writes the Secret and renews it."""


class IngressValues(Model):
    """An Ingress to the gateway."""

    enabled: bool = False
    """Create it, for `gateway.host`."""
    class_name: OptionalName = ""
    """IngressClass. Empty means that of the cluster."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations for its controller, above all time limits and no buffering."""


class HttpRouteValues(Model):
    """An HTTPRoute of the Gateway API to the gateway."""

    enabled: bool = False
    """Create it, for `gateway.host`. The listener of the Gateway has the certificate."""
    parent_refs: Annotated[list[FreeObject], Field(max_length=32)] = Field(default_factory=list)
    """Gateways that it belongs to, as in the spec of an HTTPRoute: `name`, and `namespace` and `sectionName` if
    needed."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations."""


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
    host: Annotated[str, Field(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")] = ""
    """Name of the gateway outside of the cluster, such as `agents.example.com`, for the Ingress, the HTTPRoute and the
    Certificate."""
    ingress: IngressValues = IngressValues()
    """An Ingress."""
    http_route: HttpRouteValues = HttpRouteValues()
    """An HTTPRoute of the Gateway API."""
    tls: TlsValues = TlsValues()
    """The certificate of the front door."""
    api_keys: ApiKeysValues = ApiKeysValues()
    """The Secret with the hashed API keys."""
    initial_api_key: InitialApiKeyValues = InitialApiKeyValues()
    """A first API key."""
    oidc: SettingsValues = SettingsValues()
    """Sign-in of people by OpenID Connect."""
    rules: Annotated[list[AccessRule], Field(max_length=256)] = Field(default_factory=list)
    """What people and accounts of Kubernetes may do. The first rule that fits caller and namespace counts. Accounts
    without a rule have their rights in Kubernetes. A change needs no restart."""
