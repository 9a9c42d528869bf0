"""Settings of the operator, from its environment."""

import re
from ipaddress import ip_address
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.constants import OPERATOR_PORT
from mcp_exec_api.meta import Model
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.process.settings import ChartValue, ExecutionSettings, OwnLogLevel, ProxySettings, Seconds

_LeaseSeconds = Annotated[int, Field(ge=2, le=300)]
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class InitialApiKey(Model):
    """A first API key of the gateway, named `initial`, which the operator creates."""

    namespace: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")] = ""
    """Namespace for its callers' code. Empty means the first of `namespaces` when the key is created."""
    valid_days: Annotated[int, Field(ge=0, le=36_500)] = 90
    """Days from its creation until the key is refused; 0 means never. As `namespace`, `limits` and `approver`, it
    applies when the key is created. To get a new key, delete the Secret `<release>-initial-api-key`: the operator makes
    another within a minute, and the old one is refused."""
    limits: KeyLimits = KeyLimits(
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
        max_priority=Priority.NORMAL,
    )
    """Limits of the key. It may use all pools and tools of its namespace, on behalf of every user, unless `pools`,
    `tools` and `users` are set."""
    approver: bool = False
    """Allow its callers to decide on tool calls that wait for an approval, and on skills."""


class BundleSource(Model):
    """Certificates of the company's authorities in an object of each namespace."""

    kind: Literal["ConfigMap", "Secret"]
    """Kind of the object."""
    name: str
    """Name of the object."""
    key: str
    """Key in its data."""


class Settings(ExecutionSettings, ProxySettings):
    """Settings of the operator, each from a variable with the prefix `MCP_EXEC_`. They are read once, in `main()`."""

    own_log_level: Annotated[OwnLogLevel, ChartValue("operator.logLevel")] = ""
    """Log level of the operator. Empty means `logLevel`."""
    sandbox_key_secret: Annotated[str, Field(min_length=1)]
    """Secret of the release's namespace with the release's key as the entry `key`, and during a rotation another one
    as `next-key` or `previous-key`. Tokens of supervisors, grants and tokens of services are derived from them."""
    create_sandbox_key: bool = False
    """Whether the operator creates this Secret if there is none, and rotates its keys."""
    sandbox_key_rotate_days: Annotated[int, Field(ge=0, le=3650), ChartValue("sandboxKey.rotateDays")] = 90
    """The operator replaces a key that it created when the key is so many days old. With 0, only an
    annotation of the Secret makes it do so."""
    api_keys_secret: str = ""
    """Secret of the release's namespace with the gateway's API keys, which the operator creates if there is none. If
    empty, the operator creates no API key and changes none."""
    initial_api_key_secret: str = ""
    """Secret of the release's namespace with the text of the first API key."""
    initial_api_key: InitialApiKey | None = None
    """The first API key, as JSON. If not set, none is created, and one that the operator created is revoked."""
    release_name: str = ""
    """Label `app.kubernetes.io/instance` of the release's pods, which NetworkPolicies of sandboxes and stdio servers
    admit. If empty, they admit those of every release in the release's namespace."""
    release_label: str = ""
    """The release as the value of the label `mcp-exec.dev/release` of its namespaces. A namespace with another value is
    not served."""
    service_account: str = ""
    """The operator's ServiceAccount. Secrets that belong only to the release are deleted with it. If empty, nothing in
    the release's namespace is recorded or created for it."""
    upgrade_crds: Annotated[bool, ChartValue("crds.upgrade", default=True)] = False
    """The operator upgrades the definitions to its version when it starts. It leaves those of a newer version as they
    are."""
    port: Annotated[int, Field(ge=0, le=65535)] = OPERATOR_PORT
    """Port of `/healthz`, `/readyz` and `/metrics`."""
    bind_timeout_seconds: Annotated[float, Field(gt=0), ChartValue("operator.bindTimeoutSeconds", Seconds)] = 60.0
    """Seconds that a pending execution waits while its pool binds no pod. Then it fails. They begin again when the pool
    gives a pod to another waiting execution, up to 20 times this value in total."""
    resync_seconds: Annotated[float, Field(gt=0), ChartValue("operator.resyncSeconds", Seconds)] = 20.0
    """Seconds between two resyncs, which compare all caches of the operator with fresh lists."""
    max_ttl_seconds: Annotated[
        float, Field(ge=0), ChartValue("operator.maxTtlSeconds", Annotated[int, Field(ge=0, le=30 * 24 * 3600)])
    ] = 7 * 24 * 3600.0
    """Longest time in seconds from an execution's end to its deletion. A longer `ttlSecondsAfterFinished` has no
    effect."""
    max_sessions_per_owner: Annotated[int, Field(ge=0, le=10_000), ChartValue("operator.sessions.maxPerOwner")] = 16
    """Sessions of one caller and user in a namespace. All who use the Kubernetes API without a user are one owner."""
    max_sessions_per_namespace: Annotated[
        int, Field(ge=0, le=10_000), ChartValue("operator.sessions.maxPerNamespace")
    ] = 200
    """Sessions in a namespace."""
    pod_start_timeout_seconds: Annotated[float, Field(gt=0), ChartValue("operator.podStartTimeoutSeconds", Seconds)] = (
        120.0
    )
    """Seconds until a sandbox pod that is not ready is replaced."""
    watch_nodes: Annotated[bool, ChartValue("operator.watchNodes")] = True
    """Watch the cluster's nodes, to move idle pods off cordoned nodes and to end runs on lost nodes at once."""
    verify_isolation: Annotated[bool, ChartValue("operator.verifyIsolation")] = True
    """Require each sandbox to confirm that its NetworkPolicy blocks the API server: before it is used, and each second
    as long as it exists."""
    pod_ips: str = ""
    """Addresses of the operator's pod, separated by commas. Sandboxes verify that they can't reach `isolation_port` at
    one of a family that the API server's address does not have."""
    isolation_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port that accepts connections of all pods and serves nothing. 0 opens none."""
    records: bool = False
    """Whether the broker keeps records: an execution is deleted only after its record is stored."""
    records_code: Annotated[Literal["Never", "Digest", "Full"], ChartValue("broker.records.code")] = "Digest"
    """What the record of an execution keeps of its code: nothing, its SHA-256 digest, or all of it."""
    template_prefixes: Annotated[tuple[str, ...], NoDecode, ChartValue("operator.templatePrefixes")] = ()
    """Prefixes that labels and annotations of a pool's template may have, DNS names such as `cost.example.com`. Keys
    without prefix and dots are allowed."""
    sandbox_users: Annotated[Literal["Random", "Cluster"], ChartValue("operator.sandboxUsers")] = "Random"
    """User IDs of sandboxes. Random: each has its own. Cluster: the cluster assigns those of sandboxes and stdio
    servers, as OpenShift's restricted-v2 does. With runc, `maxProcesses` then counts the processes of all sandboxes
    of the namespace on a node."""
    seal_after_seconds: Annotated[float, Field(ge=0)] = 5.0
    """Age of a pod when it is sealed, so that the next leader recognizes it. That leader replaces younger pods."""
    servers_image: str = ""
    """Image with the bridge for stdio servers. If empty, no stdio server can run."""
    servers_image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of that image."""
    servers_image_pull_secrets: Annotated[tuple[str, ...], NoDecode] = ()
    """Secrets with credentials for that image, as a comma-separated list. Each namespace has its own."""
    servers_ca_bundle: BundleSource | None = None
    """Certificates of authorities that stdio servers trust, as JSON. Each namespace has its own object."""
    servers_proxy_secret: str = ""
    """Secret of each namespace with the entries `http` and `https`: URLs of proxies for stdio servers."""
    wrappers_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds until the wrappers of a namespace are requested again, if no ToolServer has changed."""
    skills_folder: str = ""
    """Folder with the skills that the release brings, each a folder with SKILL.md. If empty, there are none, and those
    that an earlier release brought are deleted."""
    shutdown_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Seconds that writes in flight have to end when the operator stops."""
    api_wait_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that the operator waits for the API server when it starts."""
    pod_name: str = ""
    """Name of the pod, which with its uid is the identity in the election; empty means the host's name."""
    pod_uid: str = ""
    """Uid of the pod; empty means a new one at each start of the process."""
    lease_name: Annotated[str, Field(min_length=1)] = "mcp-exec-operator"
    """Lease in the release's namespace that elects one operator as leader; the others are standbys. The operator's
    RoleBindings have the same name."""
    lease_duration_seconds: Annotated[
        int, Field(ge=1), ChartValue("operator.leaderElection.leaseDurationSeconds", _LeaseSeconds)
    ] = 15
    """Seconds without a renewal until a standby takes over."""
    lease_renew_seconds: Annotated[
        float, Field(gt=0), ChartValue("operator.leaderElection.renewDeadlineSeconds", _LeaseSeconds)
    ] = 10.0
    """Seconds without a renewal until the leader exits. Must be less than `leaseDurationSeconds`."""
    lease_retry_seconds: Annotated[
        float,
        Field(gt=0),
        ChartValue("operator.leaderElection.retryPeriodSeconds", Annotated[int, Field(ge=1, le=60)]),
    ] = 2.0
    """Seconds between two renewals, and between two checks of a standby. Must be less than `renewDeadlineSeconds`."""

    @field_validator("template_prefixes", "servers_image_pull_secrets", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("template_prefixes")
    @classmethod
    def _check_prefixes(cls, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [prefix for prefix in prefixes if not _PREFIX.fullmatch(prefix)]:
            raise ValueError(f"{wrong[0]!r} is not a DNS name, such as example.com")
        return prefixes

    @field_validator("pod_ips")
    @classmethod
    def _addresses(cls, value: str) -> str:
        for text in value.split(",") if value else ():
            ip_address(text)
        return value

    @field_validator("lease_renew_seconds", "lease_retry_seconds")
    @classmethod
    def _ordered(cls, value: float, info: ValidationInfo) -> float:
        longer = "lease_duration_seconds" if info.field_name == "lease_renew_seconds" else "lease_renew_seconds"
        if value >= info.data.get(longer, float("inf")):
            raise ValueError(f"it must be less than {longer}, which is {info.data[longer]:g}")
        return value
