"""Settings of the operator, from its environment."""

import re
from ipaddress import ip_address
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from mcp_exec_api.constants import DEFAULT_MAX_STORED, DEFAULT_MAX_STORED_BYTES, OPERATOR_PORT
from mcp_exec_api.meta import Model
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.process.settings import ProcessSettings

_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class InitialApiKey(Model):
    """The first API key of the gateway, when the operator creates it."""

    namespace: str = ""
    """Namespace where its callers run code; empty means the first that is served when the key is created."""
    limits: KeyLimits = KeyLimits()
    """Limits of the key."""
    approver: bool = False
    """Whether the key may decide on approvals."""
    valid_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """Days from its creation until the key is refused; 0 means never."""


class Settings(ProcessSettings):
    """Settings of the operator, each from a variable with the prefix `MCP_EXEC_`. They are read once, in `main()`."""

    sandbox_key_secret: Annotated[str, Field(min_length=1)]
    """Secret of the release's namespace with the release's key as the entry `key`, and during a rotation another one
    as `next-key` or `previous-key`. Tokens of supervisors, grants and tokens of services are derived from them."""
    create_sandbox_key: bool = False
    """Whether the operator creates this Secret if there is none, and rotates its keys."""
    sandbox_key_rotate_days: Annotated[int, Field(ge=0, le=3650)] = 0
    """Age in days at which the operator replaces the key; 0 means that only an annotation of the Secret does."""
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
    upgrade_crds: bool = False
    """Whether the operator upgrades the cluster's CRDs to those of its version."""
    accounts_proven: bool = False
    """Whether admission policies force `mcp-exec.dev/created-by` to be the account that created an object. Without
    them, what is created past the gateway belongs to nobody."""
    port: Annotated[int, Field(ge=0, le=65535)] = OPERATOR_PORT
    """Port of `/healthz`, `/readyz` and `/metrics`."""
    bind_timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that an execution waits for a pod before it fails with the reason for the shortage. They begin again when
    the pool gives a pod to another waiting execution, up to 20 times this setting in total."""
    resync_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Seconds between two resyncs, which compare all caches with fresh lists."""
    max_ttl_seconds: Annotated[float, Field(ge=0)] = 7 * 24 * 3600.0
    """Seconds from its end until an execution is deleted at the latest, whatever its `ttlSecondsAfterFinished`."""
    max_stored: Annotated[int, Field(ge=1)] = DEFAULT_MAX_STORED
    """Executions that a namespace may store. Finished ones that take more than three quarters are deleted early."""
    max_stored_bytes: Annotated[int, Field(ge=1)] = DEFAULT_MAX_STORED_BYTES
    """Bytes that the executions of a namespace may take in the API server, by the same rule."""
    max_sessions_per_owner: Annotated[int, Field(ge=0)] = 16
    """Sessions of one caller and user in a namespace."""
    max_sessions_per_namespace: Annotated[int, Field(ge=0)] = 200
    """Sessions in a namespace."""
    pod_start_timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    """Seconds that a pod's supervisor has to respond, before the pod is replaced."""
    watch_nodes: bool = True
    """Whether nodes are watched, cluster-wide, so that pods on cordoned or lost nodes are replaced early."""
    verify_isolation: bool = True
    """Whether each sandbox must verify that it can't connect to the API server, before it is used and while it is."""
    pod_ips: str = ""
    """Addresses of the operator's pod, separated by commas. Sandboxes verify that they can't reach `isolation_port` at
    one of a family that the API server's address does not have."""
    isolation_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port that accepts connections of all pods and serves nothing. 0 opens none."""
    broker_service: str = ""
    """The broker's Service in the release's namespace. If empty, no execution has tools."""
    records: bool = False
    """Whether the broker keeps records: an execution is deleted only after its record is stored."""
    records_code: Literal["Never", "Digest", "Full"] = "Digest"
    """What the record of an execution keeps of its code."""
    template_prefixes: Annotated[tuple[str, ...], NoDecode] = ()
    """Prefixes that labels and annotations of a pool's template may have, as a comma-separated list of DNS names. Keys
    without prefix and dots are always allowed."""
    sandbox_users: Literal["Random", "Cluster"] = "Random"
    """Random: each sandbox gets a user ID of its own. Cluster: admission assigns the users of sandboxes and of stdio
    servers, as OpenShift does."""
    seal_after_seconds: Annotated[float, Field(ge=0)] = 5.0
    """Age of a pod when it is sealed, so that the next leader recognizes it. That leader replaces younger pods."""
    servers_image: str = ""
    """Image with the bridge for stdio servers. If empty, no stdio server can run."""
    servers_image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of that image."""
    servers_image_pull_secrets: Annotated[tuple[str, ...], NoDecode] = ()
    """Secrets with credentials for that image, as a comma-separated list. Each namespace has its own."""
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
    lease_duration_seconds: Annotated[int, Field(ge=1)] = 15
    """Seconds without a renewal until another operator takes over."""
    lease_renew_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Seconds without a renewal until the leader exits; fewer than `lease_duration_seconds`."""
    lease_retry_seconds: Annotated[float, Field(gt=0)] = 2.0
    """Seconds between two renewals, or two reads by a standby; fewer than `lease_renew_seconds`."""

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
