"""Types, defaults and meanings of the chart's values, but for those that settings of the processes declare.

values.yaml, its schema and its table are generated from both.
"""

from typing import Annotated, Literal

from hack.chart.broker_values import BrokerValues
from hack.chart.installer_values import ClusterObjectsValues, PrePullValues, PriorityClassValues, RbacValues
from hack.chart.process_values import (
    GatewayValues,
    ImagesValues,
    MonitoringValues,
    OperatorValues,
)
from hack.chart.workload_values import (
    Amount,
    ImageValues,
    Name,
    Names,
    OptionalImage,
    OptionalName,
    Peers,
    Port,
    RuntimeName,
    SettingsValues,
)
from pydantic import Field

from mcp_exec_api.meta import Model
from mcp_exec_api.sandbox_pool import (
    FreeObject,
    ImagePullSecret,
    ModuleName,
    ResourceList,
    Resources,
    SandboxPoolSpec,
    Warm,
)
from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_api.wire.version import RELEASE
from mcp_exec_common.process.settings import Cidr


class ServersValues(Model):
    """Image with the bridge for stdio servers and with the demo servers."""

    image: ImageValues = ImageValues()
    """Image of the servers."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets of the served namespaces with credentials of its registry, for the demo servers."""


class ToolServerValues(ToolServerSpec):
    """A ToolServer. Its fields are those of a ToolServer's spec."""

    namespaces: Names = Field(default_factory=list)
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


class CaBundleValues(Model):
    """Certificates of the company's authorities, which are trusted in addition to public ones."""

    config_map: OptionalName = ""
    """ConfigMap of the release's namespace with the certificates in PEM. Stdio servers use the one of this name in
    their own namespace."""
    secret: OptionalName = ""
    """Secret with them instead of a ConfigMap."""
    key: Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = "ca.crt"
    """Key in the data. Its value has at most 512 KiB."""


class ProxyValues(Model):
    """The company's forward proxy, for MCP servers, token endpoints, S3 and stdio servers."""

    secret: OptionalName = ""
    """Secret of the release's namespace with the entries `http` and `https`: URLs with user and password, which gateway
    and broker use in place of the values."""
    servers_secret: OptionalName = ""
    """Secret of each served namespace with the same entries, for stdio servers. Whoever may run one can read it: use
    an account of its own. Empty means the values, without credentials."""


class SandboxKeyValues(Model):
    """Key that operator and gateway authenticate to sandboxes with."""

    existing_secret: OptionalName = ""
    """Secret of the release's namespace with the entry `key`, 32 bytes or more, and during a rotation `next-key` or
    `previous-key`. Empty: the operator creates and rotates one."""


class PoolValues(SandboxPoolSpec):
    """A SandboxPool."""

    name: Name = "default"
    """Name of the pool."""
    image: OptionalImage = ""
    """Sandbox image with its tag or digest. Empty means `mcp-exec-sandbox:TAG` of `images`, or the image
    `mcp-exec-sandbox-LANGUAGE:TAG` if `language` is not python."""
    runtime_class_name: RuntimeName = "gvisor"
    """RuntimeClass, for example of gVisor or Kata, or `NodeDefault` for the node's default runtime. The pool runs
    nothing without the RuntimeClass, and its condition Ready has the reason RuntimeClassNotFound."""
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
    namespaces: Names = Field(default_factory=list)
    """Served namespaces that get it. Empty means all."""


class SkillsValues(Model):
    """Skills: reusable code that sandboxes import."""

    shipped: bool = True
    """Bring the skills of the project, approved, into each served namespace. An upgrade replaces them, and false or an
    uninstallation deletes them."""


class DataPoolValues(Model):
    """A pool `data` of sandboxes with numpy, pandas, polars, pyarrow, scipy, matplotlib, openpyxl and pillow, in each
    served namespace. Its other fields are as in `pool`."""

    enabled: bool = False
    """Create it. Its image is built by `make data-image` and is no part of `make images`."""
    image: OptionalImage = ""
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


class TypescriptPoolValues(Model):
    """A pool `typescript` of sandboxes that run TypeScript, in each served namespace. Its other fields are as in
    `pool`, without `preimport`."""

    enabled: bool = False
    """Create it. Its image is built by `make images LANGUAGE=typescript`, and is no part of `make images`."""
    image: OptionalImage = ""
    """Sandbox image with its tag or digest. Empty means `mcp-exec-sandbox-typescript:TAG` of `images`."""
    warm: Warm = Warm(min=1)
    """Number of warm pods."""
    resources: Resources = Resources(
        limits=ResourceList(cpu="1", memory="1Gi", ephemeral_storage="512Mi"),
        requests=ResourceList(cpu="50m", memory="192Mi", ephemeral_storage="64Mi"),
    )
    """Resource limits and requests of each sandbox."""


class NamespaceQuotaValues(Model):
    """The ResourceQuota of one namespace."""

    hard: dict[str, Amount]
    """Limits by resource. Those that are not listed are as in `quota.hard`."""


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
    namespaces: dict[Name, NamespaceQuotaValues] = Field(default_factory=dict)
    """Quotas of single served namespaces, for example `{batch: {hard: {pods: 20}}}`."""


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

    cidrs: list[Cidr] = Field(default_factory=list)
    """Networks of its Service and EndpointSlice, for example `10.0.0.1/32`. Empty means any address, at `ports`."""
    ports: Annotated[list[Port], Field(min_length=1)] = [443, 6443, 8443, 16443]
    """Ports of its Service and of the servers themselves. The last two are those of minikube and MicroK8s."""


class ExtraEgressValues(Model):
    """Egress rules as in a NetworkPolicy, in addition to those of the chart."""

    operator: Peers = Field(default_factory=list)
    """Rules of the operator."""
    gateway: Peers = Field(default_factory=list)
    """Rules of the gateway."""
    broker: Peers = Field(default_factory=list)
    """Rules of the broker. They have an effect if `brokerTo` or `brokerToNames` limits what it may reach."""


class NetworkPoliciesValues(Model):
    """NetworkPolicies. The operator manages those of sandboxes; they cannot be disabled."""

    enabled: bool = True
    """Create the NetworkPolicies of operator, gateway and broker."""
    flavour: Literal["Ports", "Addresses", "Cilium"] = "Ports"
    """How rules name what is outside of the cluster. Ports: the API server by its ports, at any address unless
    `apiServer.cidrs` has some. Addresses: `apiServer.cidrs` and `brokerTo` are required. Cilium: the API server is an
    entity, and the broker may be limited to `brokerToNames`, by CiliumNetworkPolicies."""
    gateway_from: Peers = Field(default_factory=list)
    """Peers that may reach the gateway, as in a NetworkPolicy. Empty means all. Kubelets always may."""
    metrics_from: Peers = Field(default_factory=list)
    """Peers that may reach the metrics of operator, broker and gateway. Empty: none. Kubelets always may."""
    broker_to: Peers = Field(default_factory=list)
    """Peers that the broker may reach besides stdio servers: MCP servers, token endpoints, DNS. Empty: all.
    Otherwise `apiServer.cidrs` is required, unless the flavour is Cilium."""
    broker_to_names: Annotated[
        list[Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9*]([-a-z0-9.*]*[a-z0-9*])?$")]],
        Field(max_length=256),
    ] = Field(default_factory=list)
    """Names of hosts that the broker may reach, for the flavour Cilium. `*` stands for characters within a label."""
    extra_egress: ExtraEgressValues = ExtraEgressValues()
    """Additional egress rules, for example to a collector of traces or a proxy."""
    api_server: ApiServerValues = ApiServerValues()
    """The Kubernetes API server: with sandboxes and broker, all that operator and gateway may reach."""


class AdmissionPolicyValues(Model):
    """Admission policies for the served namespaces. Without them, what is created past the gateway is nobody's."""

    enabled: Literal["auto", True, False] = "auto"
    """Create them: `auto` if the cluster is Kubernetes 1.30 or later, `true` always, for tools that render the chart
    without the cluster and may assume an older one. One limits which Secrets the operator creates."""
    trusted_users: Annotated[list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    """Usernames that may state callers, accounts and approvers of executions, as the gateway does."""
    own_user_only: bool = False
    """Require that `spec.user` of an execution that was not created by the gateway is its creator's username."""
    isolation: bool = True
    """Refuse pods that pose as sandboxes or stdio servers, changes of these and of all that the operator makes, and
    NetworkPolicies that could open them."""


class Values(Model):
    """All values of the chart."""

    defaults_of: Annotated[str, Field(max_length=64)] = RELEASE
    """Release whose defaults these values have. Do not set it: after `helm upgrade --reuse-values` it is that of the
    earlier release, and the templates add the defaults of values that this release did not have."""
    fullname_override: Annotated[str, Field(max_length=40, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")] = ""
    """Prefix of the objects' names. Empty means the release's name, with `-mcp-exec` appended if the name lacks it."""
    common_labels: dict[str, str] = Field(default_factory=dict)
    """Additional labels of all objects and pods of the chart. Those that the chart sets have precedence."""
    cluster_objects: ClusterObjectsValues = ClusterObjectsValues()
    """Objects that only an administrator of the cluster may create: ClusterRoles, all Roles and bindings, namespaces
    with their quotas and limits, admission policies, the PriorityClass."""
    rbac: RbacValues = RbacValues()
    """Roles, ClusterRoles and their bindings."""
    crds: SettingsValues = SettingsValues()
    """The CustomResourceDefinitions."""
    namespaces: Annotated[list[Name], Field(min_length=1, max_length=100, json_schema_extra={"uniqueItems": True})] = [
        "agents"
    ]
    """Namespaces for executions. Operator and gateway have rights only in these."""
    create_namespaces: bool = True
    """Create the namespaces."""
    keep_namespaces: bool = True
    """Keep the created namespaces with all executions after `helm uninstall`, and when they are removed from
    `namespaces`. If false, Helm deletes them, for example for a trial."""
    namespace_labels: dict[str, str] = Field(default_factory=dict)
    """Additional labels of the namespaces that the chart creates."""
    pod_security: Literal["restricted", "baseline", "privileged"] = "restricted"
    """Pod Security level that is enforced in the namespaces that the chart creates."""
    aggregate_roles: bool = False
    """Add the ClusterRoles `<release>-viewer`, `-caller` and `-manager` to Kubernetes' `view`, `edit` and `admin`."""
    metrics: SettingsValues = SettingsValues()
    """Metrics of operator, gateway and broker."""
    monitoring: MonitoringValues = MonitoringValues()
    """Objects for Prometheus and Grafana."""
    images: ImagesValues = ImagesValues()
    """Where all images come from."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets with registry credentials, for operator, gateway and broker in the release's namespace, and for sandboxes
    and stdio servers in theirs, which need Secrets of these names."""
    pod_security_context: FreeObject = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    """Security context of the pods of operator, gateway, broker and Jobs. A field that is null is left to the cluster,
    for example `runAsUser` on OpenShift."""
    security_context: FreeObject = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    """Security context of their containers."""
    priority_class: PriorityClassValues = PriorityClassValues()
    """A PriorityClass of operator, gateway and broker."""
    pre_pull: PrePullValues = PrePullValues()
    """DaemonSets that keep the images of the chart's pools on the nodes."""
    extra_objects: Annotated[list[FreeObject | str], Field(max_length=100)] = Field(default_factory=list)
    """Additional objects, as YAML or as text with templates in it, such as `{{ .Release.Namespace }}`."""
    operator: OperatorValues = OperatorValues()
    """The operator."""
    gateway: GatewayValues = GatewayValues()
    """The gateway."""
    broker: BrokerValues = BrokerValues()
    """The broker."""
    proxy: ProxyValues = ProxyValues()
    """The company's forward proxy."""
    ca_bundle: CaBundleValues = CaBundleValues()
    """Certificates of the company's authorities: for MCP servers, token endpoints, identity providers, PostgreSQL, S3
    and stdio servers."""
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
    typescript_pool: TypescriptPoolValues = TypescriptPoolValues()
    """A pool that runs TypeScript, off by default."""
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
