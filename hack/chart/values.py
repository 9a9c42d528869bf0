"""The chart's values: their types, defaults and meanings. values.yaml, its schema and its table come from here."""

from typing import Annotated, Literal

from pydantic import Field

from mcp_exec_api.meta import Model, ToolPattern, UserPattern
from mcp_exec_api.sandbox_pool import FreeObject, ImagePullSecret, SandboxPoolSpec, Toleration
from mcp_exec_api.tool_server import ToolServerSpec

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
OptionalName = Annotated[str, Field(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
Amount = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")] | Annotated[int, Field(ge=0)]
Seconds = Annotated[int, Field(ge=1, le=3600)]
Port = Annotated[int, Field(ge=1, le=65535)]
Peers = Annotated[list[FreeObject], Field(max_length=64)]


class Crds(Model):
    """The CustomResourceDefinitions CodeExecution and SandboxPool. Helm installs them, and never removes them."""

    upgrade: bool = True
    """Whether a Job brings those of another version to this one's. One release of a cluster does; others needn't."""


class Image(Model):
    """A container image."""

    repository: Annotated[str, Field(min_length=1, pattern=r"^[^\s@]+$")]
    """The image's name without its tag."""
    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")] = "dev"
    """The image's tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls it."""


class Amounts(Model):
    """Amounts of what a container may use."""

    cpu: Amount = "50m"
    """Cores, such as `1` or `250m`."""
    memory: Amount = "128Mi"
    """Bytes, such as `512Mi`."""


class Limits(Model):
    """What a container can't exceed. No CPU limit by default: throttling would be felt in every execution."""

    cpu: Amount | None = None
    """Cores, such as `1` or `250m`."""
    memory: Amount = "512Mi"
    """Bytes, such as `512Mi`."""


class Resources(Model):
    """Requests and limits of a container."""

    requests: Amounts = Amounts()
    """What the scheduler keeps for it."""
    limits: Limits = Limits()
    """What it can't exceed."""


class EnvVar(Model):
    """An environment variable, as in a PodSpec."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Its name."""
    value: str | None = None
    """Its value."""
    value_from: FreeObject | None = None
    """Where its value comes from."""


class Workload(Model):
    """What operator, gateway and broker have in common."""

    resources: Resources = Resources()
    """Requests and limits of the container."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(default_factory=list)
    """Taints that the pods tolerate."""
    affinity: FreeObject = Field(default_factory=dict)
    """An Affinity, as in a PodSpec."""
    priority_class_name: OptionalName = ""
    """The pods' PriorityClass; empty means the cluster's default."""
    pod_labels: dict[str, str] = Field(default_factory=dict)
    """Further labels of the pods."""
    pod_annotations: dict[str, str] = Field(default_factory=dict)
    """Further annotations of the pods."""
    service_account_annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the ServiceAccount."""
    extra_env: Annotated[list[EnvVar], Field(max_length=64)] = Field(default_factory=list)
    """Further environment variables, such as SSL_CERT_FILE."""


class LeaderElection(Model):
    """How the operator that works is elected. Another takes over within lease duration and retry period."""

    lease_duration_seconds: Annotated[int, Field(ge=2, le=300)] = 15
    """Seconds without a renewal after which another operator takes over."""
    renew_deadline_seconds: Annotated[int, Field(ge=2, le=300)] = 10
    """Seconds without a renewal after which the leader ends; fewer than `leaseDurationSeconds`."""
    retry_period_seconds: Annotated[int, Field(ge=1, le=60)] = 2
    """Seconds between two renewals, or two looks of who stands by; fewer than `renewDeadlineSeconds`."""


class Operator(Workload):
    """The operator. It binds executions to pods and keeps the pools warm."""

    image: Image = Image(repository="localhost/mcp-exec-operator")
    """The operator's image."""
    replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Pods: one works, the others stand by and are spread over the nodes."""
    leader_election: LeaderElection = LeaderElection()
    """How the operator that works is elected."""
    bind_timeout_seconds: Seconds = 60
    """Seconds that a pending execution waits while its pool gives out no pod; then it fails with the reason why."""
    sweep_seconds: Seconds = 20
    """Seconds between two comparisons of everything the operator knows with a fresh list."""
    pod_start_timeout_seconds: Seconds = 120
    """Seconds after which a sandbox pod that did not become ready is replaced."""
    watch_nodes: bool = True
    """Whether it reads the cluster's nodes, to move idle pods off cordoned ones and end runs on lost ones at once."""
    verify_isolation: bool = True
    """Whether each sandbox must find, before it is used, that its NetworkPolicy cuts it off from the API server."""


class Service(Model):
    """The gateway's Service."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """How it is reached. TLS is for an Ingress or a load balancer to end; the gateway speaks HTTP."""
    port: Port = 80
    """Its port."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations, such as those of a cloud's load balancer."""


class ApiKeys(Model):
    """The Secret with the hashed API keys of the gateway."""

    existing_secret: OptionalName = ""
    """A Secret of the release's namespace to use in the place of `<release>-api-keys`."""


class KeyLimits(Model):
    """What the callers of an API key may do."""

    max_concurrent: Annotated[int, Field(ge=1)] | None = None
    """Executions at a time."""
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Requests of every kind, to each replica of the gateway."""
    max_timeout_seconds: Annotated[int, Field(ge=1, le=300)] | None = None
    """The longest `timeoutSeconds`."""
    pools: list[Name] | None = None
    """The pools that may be used."""
    max_priority: Literal["High", "Normal", "Low"] | None = None
    """The highest `priority`."""
    tools: Annotated[list[ToolPattern], Field(max_length=256)] | None = None
    """The tools that may be asked for and are found, such as `github.*`; an empty list means none."""
    users: Annotated[list[UserPattern], Field(max_length=256)] | None = None
    """The users that executions may be for, such as `team-a/*`; an empty list means none."""


class InitialApiKey(Model):
    """An API key to begin with, named `initial`. Its text is in the Secret `<release>-initial-api-key`."""

    create: bool = True
    """Whether it exists. Set to false, and it is revoked and removed with the next upgrade."""
    namespace: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")] = ""
    """The namespace that its callers run code in; empty means the first of `namespaces`."""
    limits: KeyLimits = KeyLimits()
    """Its limits; none by default."""
    approver: bool = False
    """Whether it may decide on tool calls that wait for consent."""


class Gateway(Workload):
    """The gateway: the HTTP API."""

    image: Image = Image(repository="localhost/mcp-exec-gateway")
    """The gateway's image."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """Pods. From two on they are spread over the nodes, and a PodDisruptionBudget keeps all but one."""
    max_wait_seconds: Annotated[int, Field(ge=1, le=600)] = 310
    """The longest `wait` that a caller may ask for. A pod that ends is given this long to answer its callers."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=3 * 1024 * 1024)] = 1024 * 1024
    """The largest request body. The API server takes objects of about 1.5 MiB."""
    drain_seconds: Annotated[int, Field(ge=0, le=60)] = 5
    """Seconds in which a pod that ends still takes callers, until every node knows that it goes."""
    audience: str = ""
    """The audience that ServiceAccount tokens must have; empty means the API server's own."""
    service: Service = Service()
    """The Service."""
    api_keys: ApiKeys = ApiKeys()
    """The Secret with the hashed API keys."""
    initial_api_key: InitialApiKey = InitialApiKey()
    """An API key to begin with."""


class AuditPersistence(Model):
    """A volume on which the audit outlives the broker's pod. With it the broker has one replica."""

    enabled: bool = False
    """Whether there is one; else the records go with the pod, and the log stream alone is left of them."""
    existing_claim: OptionalName = ""
    """A PersistentVolumeClaim of the release's namespace; empty means that one is made, and kept."""
    storage_class: str = ""
    """Its StorageClass; empty means the cluster's default."""


class Audit(Model):
    """The records of tool calls."""

    size: Annotated[str, Field(pattern=r"^[0-9]+(Ki|Mi|Gi|Ti)$")] = "1Gi"
    """The volume that they are on."""
    keep_bytes: Annotated[int, Field(ge=1024 * 1024)] = 768 * 1024 * 1024
    """Bytes that they may take there, less than `size`; the oldest go first."""
    keep_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days that they are kept."""
    persistence: AuditPersistence = AuditPersistence()
    """A volume on which they outlive the broker's pod."""


class Broker(Workload):
    """The broker: all tool calls of sandboxes go through it, and all credentials of MCP servers are with it."""

    enabled: bool = True
    """Whether there is one; without it executions that ask for tools are refused."""
    image: Image = Image(repository="localhost/mcp-exec-broker")
    """The broker's image."""
    replicas: Annotated[int, Field(ge=1, le=20)] = 1
    """Pods. All calls of an execution go to one of them."""
    max_calls: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Calls that may be under way at once in each pod; more are denied."""
    shutdown_seconds: Annotated[int, Field(ge=0, le=300)] = 10
    """Seconds that calls under way have to end when a pod is asked to stop."""
    audit: Audit = Audit()
    """The records of tool calls."""


class Servers(Model):
    """The image with the bridge for stdio servers, and with the demo servers."""

    image: Image = Image(repository="localhost/mcp-exec-servers")
    """The image."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets of the served namespaces with credentials of its registry, for the demo servers."""


class ToolServerValues(ToolServerSpec):
    """A ToolServer: its fields are those of a ToolServer's spec."""

    namespaces: list[Name] = Field(default_factory=list)
    """The served namespaces that have it; none named means all."""


class DemoServer(Model):
    """A demo server."""

    enabled: bool = False
    """Whether it is installed, in each served namespace."""


class DemoServers(Model):
    """Demo servers, to try tools without an account anywhere. Their data is made up."""

    calculator: DemoServer = DemoServer()
    """Arithmetic."""
    weather: DemoServer = DemoServer()
    """Weather of a few cities."""
    database: DemoServer = DemoServer()
    """SQL over a small SQLite database."""
    sheets: DemoServer = DemoServer()
    """Spreadsheets, one of them of 10,000 rows."""
    slack: DemoServer = DemoServer()
    """The history of a few channels."""
    expenses: DemoServer = DemoServer()
    """Expenses of a few people."""
    trips: DemoServer = DemoServer()
    """Journeys by camper: the way, places to stay and their bookings."""


class SandboxKey(Model):
    """The key that operator and gateway prove themselves to the sandboxes with."""

    existing_secret: OptionalName = ""
    """A Secret of the release's namespace with the entry `key`, 32 bytes or more; empty means that one is made."""


class PoolValues(SandboxPoolSpec):
    """A SandboxPool."""

    name: Name = "default"
    """The pool's name."""
    image: Annotated[str, Field(min_length=1, max_length=512)] = "localhost/mcp-exec-sandbox:dev"
    """The sandbox image, with its tag or digest."""
    runtime_class_name: OptionalName = ""
    """The RuntimeClass, such as one of gVisor or Kata; empty means the node's default runtime."""
    priority_class_name: OptionalName = ""
    """The pods' PriorityClass; empty means the cluster's default."""


class DefaultPool(PoolValues):
    """The default pool, one in each served namespace. Its fields are those of a SandboxPool's spec."""

    enabled: bool = True
    """Whether the chart makes it."""


class ExtraPool(PoolValues):
    """A further pool. A field that is not given is as in `pool`; one that is given replaces it as a whole."""

    name: Name
    """The pool's name."""
    namespaces: list[Name] = Field(default_factory=list)
    """The served namespaces that have it; none named means all."""


class Quota(Model):
    """A ResourceQuota of each served namespace."""

    enabled: bool = True
    """Whether the chart makes it."""
    hard: dict[str, Amount] = {"pods": 200, "limits.cpu": 200, "limits.memory": "100Gi"}
    """Its bounds, by resource; also `count/codeexecutions.mcp-exec.dev` and `count/toolservers.mcp-exec.dev`."""


class Bounds(Model):
    """CPU and memory."""

    cpu: Amount
    """Cores."""
    memory: Amount
    """Bytes."""


class LimitRange(Model):
    """A LimitRange of each served namespace, for each container."""

    enabled: bool = True
    """Whether the chart makes it."""
    default: Bounds = Bounds(cpu="1", memory="512Mi")
    """Limits of a container that names none."""
    default_request: Bounds = Bounds(cpu="50m", memory="64Mi")
    """Requests of a container that names none."""
    max: Bounds = Bounds(cpu="4", memory="8Gi")
    """The highest limits that a container may have."""


class ApiServer(Model):
    """Where the Kubernetes API server is."""

    cidrs: list[Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]] = Field(default_factory=list)
    """Its addresses, such as `10.0.0.1/32`; none named means any address at its ports."""
    ports: Annotated[list[Port], Field(min_length=1)] = [443, 6443]
    """Its ports, of the Service and of the server itself."""


class NetworkPolicies(Model):
    """NetworkPolicies. Those of the pools are the operator's work and can't be turned off."""

    enabled: bool = True
    """Whether operator, gateway and sandboxes get theirs from the chart."""
    gateway_from: Peers = Field(default_factory=list)
    """Peers that reach the gateway, as in a NetworkPolicy; none named means all. Kubelets always do."""
    metrics_from: Peers = Field(default_factory=list)
    """Peers that reach the metrics of operator and broker; none named means all for the operator alone."""
    broker_to: Peers = Field(default_factory=list)
    """Peers that the broker may reach beside stdio servers: MCP servers, token endpoints, DNS; none named means all."""
    api_server: ApiServer = ApiServer()
    """Where the Kubernetes API server is: beside the sandboxes all that operator and gateway may reach."""


class Values(Model):
    """All values."""

    fullname_override: Annotated[str, Field(max_length=40, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")] = ""
    """What the objects' names begin with; empty means the release's name, with `-mcp-exec` where that lacks it."""
    crds: Crds = Crds()
    """The CustomResourceDefinitions."""
    namespaces: Annotated[list[Name], Field(min_length=1, max_length=100, json_schema_extra={"uniqueItems": True})] = [
        "agents"
    ]
    """The namespaces in which executions run. Operator and gateway have rights in these alone."""
    create_namespaces: bool = True
    """Whether the chart makes them. They, and all that is in them, outlive `helm uninstall`."""
    namespace_labels: dict[str, str] = Field(default_factory=dict)
    """Further labels of the namespaces that the chart makes."""
    pod_security: Literal["restricted", "baseline", "privileged"] = "restricted"
    """The Pod Security level that is enforced in the namespaces that the chart makes."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """How much operator and gateway log."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets of the release's namespace with credentials of the registries of operator and gateway."""
    operator: Operator = Operator()
    """The operator."""
    gateway: Gateway = Gateway()
    """The gateway."""
    broker: Broker = Broker()
    """The broker."""
    servers: Servers = Servers()
    """The image with the bridge for stdio servers, and with the demo servers."""
    tool_servers: dict[Name, ToolServerValues] = Field(default_factory=dict)
    """ToolServers, by name. The code calls them by these names."""
    demo_servers: DemoServers = DemoServers()
    """Demo servers."""
    sandbox_key: SandboxKey = SandboxKey()
    """The key that operator and gateway prove themselves to the sandboxes with."""
    pool: DefaultPool = DefaultPool()
    """The default pool."""
    extra_pools: Annotated[list[ExtraPool], Field(max_length=100)] = Field(default_factory=list)
    """Further pools: each a name and what differs from `pool`."""
    quota: Quota = Quota()
    """A ResourceQuota of each served namespace, for sandboxes and stdio servers together."""
    limit_range: LimitRange = LimitRange()
    """A LimitRange of each served namespace."""
    network_policy: NetworkPolicies = NetworkPolicies()
    """NetworkPolicies."""
