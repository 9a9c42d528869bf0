"""SandboxPool: warm sandbox pods, each for one execution."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from mcp_exec_api.code_findings import CodeCheck
from mcp_exec_api.constants import (
    DEFAULT_LANGUAGE,
    DEFAULT_MAX_QUEUED,
    DEFAULT_MAX_TIMEOUT_SECONDS,
    MAX_TIMEOUT_SECONDS,
    Language,
)
from mcp_exec_api.meta import Condition, ConditionStatus, Image, Model, Quantity, ToolPattern, parse_quantity
from mcp_exec_api.reasons.execution import Reason

ModuleName = Annotated[
    str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")
]
"""A module as an import statement names it: identifiers of ASCII letters, digits and `_`, separated by dots."""

FreeObject = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


MAX_LIBRARIES: Final = 100
"""Libraries of a pool that are listed: of more, those with the most modules."""
MAX_IMPORTS: Final = 8


class OnEmpty(StrEnum):
    """Behavior of an execution that finds no warm pod."""

    COLD_START = "ColdStart"
    WAIT = "Wait"


_EXTENDED_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}/[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")

_Amount = Annotated[
    int, Field(ge=1, json_schema_extra={"type": ["string", "integer"], "pattern": "^[1-9][0-9]*$", "maxLength": 9})
]
"""A whole number, or its text, as a Pod takes it."""


class ResourceList(Model):
    """Amounts of compute resources."""

    cpu: Quantity | None = None
    """CPU in cores, for example `1` or `250m`."""
    memory: Quantity | None = None
    """Memory in bytes, for example `512Mi`."""
    ephemeral_storage: Annotated[Quantity | None, Field(alias="ephemeral-storage")] = None
    """Local disk in bytes for all writable volumes together, for example `512Mi`."""


class Resources(Model):
    """Resource limits and requests of a container."""

    limits: ResourceList = ResourceList(cpu="1", memory="768Mi", ephemeral_storage="512Mi")
    """Limits. A resource that is not listed keeps its default, so none is unlimited."""
    requests: ResourceList = ResourceList(cpu="50m", memory="64Mi", ephemeral_storage="64Mi")
    """Requests, which the scheduler reserves. A resource that is not listed keeps its default."""
    extended: Annotated[
        dict[str, _Amount] | None,
        Field(
            max_length=8,
            json_schema_extra={
                "x-kubernetes-validations": [
                    {
                        "rule": "self.all(name, name.contains('/'))",
                        "message": "an extended resource has a prefix, for example nvidia.com/gpu",
                    }
                ]
            },
        ),
    ] = None
    """Extended resources of nodes by name, for example `nvidia.com/gpu: 1`. Each container has the whole amount."""

    @field_validator("extended")
    @classmethod
    def _has_prefixes(cls, extended: dict[str, int] | None) -> dict[str, int] | None:
        if wrong := [name for name in extended or () if not _EXTENDED_NAME.fullmatch(name)]:
            raise ValueError(f"{wrong[0][:80]} is not an extended resource: its name has a prefix, like nvidia.com/gpu")
        return extended

    @model_validator(mode="after")
    def _requests_fit_limits(self) -> Self:
        limits, requests = self.limits.to_api(), self.requests.to_api()
        for name, amount in requests.items():
            limit = limits.get(name, amount)
            if parse_quantity(amount) > parse_quantity(limit):
                raise ValueError(f"requests.{name} is {amount}; it must not be more than the limit, which is {limit}")
        return self

    def to_container(self) -> dict[str, dict[str, Any]]:
        """Return limits and requests as a container has them: the amounts of extended resources are in both."""
        amounts, extended = self.to_api(), self.extended or {}
        return {kind: {**amounts[kind], **extended} for kind in ("limits", "requests")}

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        """Add the defaults of resources that are not listed, so that none is unlimited."""
        if not isinstance(data, dict):
            return data
        filled = dict(data)
        for name in ("limits", "requests"):
            if isinstance(amounts := filled.get(name), dict):
                default = cls.model_fields[name].default.to_api()
                filled[name] = default | {key.replace("ephemeral_", "ephemeral-"): v for key, v in amounts.items()}
        return filled


class Warm(Model):
    """Number of warm pods."""

    min: Annotated[int, Field(ge=0, le=5000)] = 3
    """Warm pods at any demand. `kubectl scale` sets this field."""
    max: Annotated[int | None, Field(ge=0, le=5000)] = None
    """Maximum number of warm pods that demand can request. If not set, or less than `min`, it equals `min`: the number
    is fixed."""


class Scaling(Model):
    """Autoscaling of the number of warm pods between `warm.min` and `warm.max`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.slowWindowSeconds >= self.fastWindowSeconds",
                    "message": "spec.scaling.slowWindowSeconds must not be less than spec.scaling.fastWindowSeconds",
                }
            ]
        }
    )

    headroom: Annotated[int, Field(ge=0, le=1000)] = 2
    """Extra warm pods kept above predicted demand. Ignored while the pool is idle."""
    stable_seconds: Annotated[int, Field(ge=0, le=86400)] = 180
    """Seconds that a smaller number of pods must be sufficient before the pool shrinks."""
    fast_window_seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """Seconds of the window that detects bursts. The higher arrival rate of both windows counts."""
    slow_window_seconds: Annotated[int, Field(ge=1, le=86400)] = 60
    """Seconds of the window that detects steady demand; at least `fastWindowSeconds`."""
    refill_per_second: Annotated[float | None, Field(ge=0.1, le=1000)] = None
    """Maximum number of warm pods created per second. If not set, it is 50, or unlimited if `warm.max` is not above
    `warm.min`."""
    refill_burst: Annotated[int, Field(ge=1, le=5000)] = 100
    """Maximum number of warm pods created at once after a quiet time, before `refillPerSecond` limits them."""

    @model_validator(mode="after")
    def _slow_is_not_faster(self) -> Self:
        if self.slow_window_seconds < self.fast_window_seconds:
            raise ValueError(
                f"slowWindowSeconds is {self.slow_window_seconds};"
                f" it must be at least fastWindowSeconds, which is {self.fast_window_seconds}"
            )
        return self


class ReuseScope(StrEnum):
    """Owners of the executions that a used pod may serve."""

    NEVER = "Never"
    OWNER = "Owner"


class Reuse(Model):
    """Reuse of pods. A pod that is used again serves one owner in its life: one caller and user of one namespace."""

    scope: ReuseScope = ReuseScope.NEVER
    """Never: each pod serves one execution. Owner: after a run the sandbox is cleaned and serves further executions of
    the same caller and user. A pod serves an execution without a proven caller once."""
    max_uses: Annotated[int, Field(ge=1, le=1000)] = 100
    """Maximum number of executions that a pod serves before it is replaced."""
    max_age_seconds: Annotated[int, Field(ge=10, le=7 * 24 * 3600)] = 3600
    """Seconds that a pod serves executions, counted from the first; the default is 1 hour."""
    idle_seconds: Annotated[int, Field(ge=1, le=24 * 3600)] = 300
    """Seconds that an idle pod is kept for its owner; the default is 5 minutes. It is deleted earlier if others
    need its place."""


class TemplateMetadata(Model):
    """Labels and annotations of the pool's pods. Those of mcp-exec itself cannot be set."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the pods, for example `team: data`."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the pods."""


class PodTemplate(Model):
    """Pod template merged into the pool's pods. It cannot change security fields, which are set afterwards."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Additional labels and annotations."""
    spec: FreeObject = Field(default_factory=dict)
    """Partial PodSpec. Its container named `sandbox` is merged into the sandbox container."""


class Toleration(Model):
    """Toleration of a taint, as in a PodSpec."""

    key: str | None = None
    """Key of the taint. If not set, every key matches."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Equal: the value must be equal. Exists: every value matches."""
    value: str | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. If not set, every effect matches."""
    toleration_seconds: int | None = None
    """Seconds that a NoExecute taint is tolerated. If not set, there is no limit."""


class ImagePullSecret(Model):
    """Reference to a Secret with registry credentials."""

    name: str
    """Name of the Secret."""


class PoolTools(Model):
    """Tools that executions of the pool may call. `spec.tools` of an execution cannot extend them."""

    allow: Annotated[list[ToolPattern], Field(max_length=256)] = Field(default_factory=lambda: ["*.*"])
    """Allowed tools, for example `github.*`. By default all are allowed."""
    deny: Annotated[list[ToolPattern], Field(max_length=256)] = Field(default_factory=list)
    """Denied tools, even if `allow` contains them."""


_PREIMPORTING: Final[Language] = "python"
"""Language whose modules a sandbox can import before it is warm."""


def _build_rules() -> list[JsonValue]:
    rules: list[JsonValue] = [
        {
            "rule": f"!has(self.warm.{bound}) || self.warm.{bound} <= self.maxPods",
            "message": f"spec.warm.{bound} must not be more than spec.maxPods{default}",
        }
        for bound, default in (("min", f"; it is {Warm().min} by default"), ("max", ""))
    ]
    rules.append(
        {"rule": "self.language == oldSelf.language", "message": "spec.language is immutable: create another pool"}
    )
    rules.append(
        {
            "rule": f"!has(self.preimport) || size(self.preimport) == 0 || self.language == '{_PREIMPORTING}'",
            "message": f"spec.preimport is only for pools of the language {_PREIMPORTING}",
        }
    )
    return rules


class SandboxPoolSpec(Model):
    """Template of the sandbox pods and the number of warm ones."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _build_rules()})

    language: Language = DEFAULT_LANGUAGE
    """Language of the code that the pool runs: python or typescript. The image must be one for this language."""
    image: Image
    """Image of the sandbox."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the image: Always, IfNotPresent or Never."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets with credentials of the image's registry."""
    runtime_class_name: Annotated[str | None, Field(max_length=253)] = None
    """RuntimeClass of the pods, for example of gVisor or Kata. If not set, the node's default runtime is used."""
    resources: Resources = Resources()
    """Resource limits and requests of each sandbox."""
    workspace_size: Quantity = "256Mi"
    """Bytes that the code may store in `/workspace` and `/tmp` together, at least `1Mi`."""
    workspace_medium: Literal["Memory", "Disk"] = "Memory"
    """Where these files are. Memory: in the memory of the sandbox, so that its memory limit bounds all of them. Disk:
    on the node's disk, where files that the code deletes and holds open may take more than `workspaceSize`."""
    max_processes: Annotated[int, Field(ge=8, le=1024)] = 64
    """Maximum number of processes and threads of a sandbox."""
    preimport: Annotated[list[ModuleName], Field(max_length=32)] = Field(default_factory=list)
    """Modules of the image that each sandbox imports before it is warm, for example `pandas`, so that the code's own
    import takes no time. They cost each pod start-up time and memory. If one can't be imported, no pod becomes ready,
    and the condition Ready has the reason PreimportFailed."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have to run the pods."""
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(default_factory=list)
    """Taints that the pods tolerate."""
    affinity: FreeObject = Field(default_factory=dict)
    """Affinity of the pods, as in a PodSpec."""
    priority_class_name: Annotated[str | None, Field(max_length=253)] = None
    """PriorityClass of the pods. If not set, the cluster's default applies."""
    template: PodTemplate = PodTemplate()
    """Additional fields of the pods."""
    warm: Warm = Warm()
    """Number of warm pods."""
    scaling: Scaling = Scaling()
    """Autoscaling of warm pods. It applies only if `warm.max` is above `warm.min`."""
    on_empty: OnEmpty = OnEmpty.COLD_START
    """Behavior of an execution that finds no warm pod. ColdStart: a pod is created for it. Wait: it waits for the next
    pod."""
    reuse: Reuse = Reuse()
    """Reuse of pods by the same owner; by default each pod serves one execution."""
    tools: PoolTools = PoolTools()
    """Tools that executions of the pool may call."""
    log_output: bool = False
    """Copy the code's stdout and stderr to the container's log, so that `kubectl logs -f` follows a run. Who reads the
    log, or what collects it, then has output that may contain data of users, also after the execution was deleted."""
    code_check: CodeCheck = CodeCheck()
    """Static check of the code before it runs; off by default."""
    max_timeout_seconds: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_SECONDS)] = DEFAULT_MAX_TIMEOUT_SECONDS
    """Largest allowed `timeoutSeconds` of an execution, in seconds: 5 minutes by default, and at most an hour."""
    max_pods: Annotated[int, Field(ge=1, le=10000)] = 100
    """Maximum number of pods of the pool: warm, starting and busy together."""
    max_queued: Annotated[int, Field(ge=1, le=10000)] = DEFAULT_MAX_QUEUED
    """Maximum number of executions that wait for a pod. The next one fails at once with the reason QueueFull."""
    max_idle_age_seconds: Annotated[int | None, Field(ge=60, le=366 * 24 * 3600)] = None
    """Age in seconds when an idle pod is replaced. Replacements are spread over the last fifth of this time. If not
    set, age is no reason."""

    @field_validator("workspace_size")
    @classmethod
    def _storage_is_some(cls, size: str) -> str:
        if parse_quantity(size) < 1024 * 1024:
            raise ValueError(f"workspaceSize is {size}; it must be at least 1Mi")
        return size

    @model_validator(mode="after")
    def _preimport_has_modules(self) -> Self:
        if self.preimport and self.language != _PREIMPORTING:
            raise ValueError(f"preimport is only for pools of the language {_PREIMPORTING}; it is {self.language}")
        return self

    @model_validator(mode="after")
    def _warm_pods_have_room(self) -> Self:
        for name, number in {"min": self.warm.min, "max": self.warm.max}.items():
            if number is not None and number > self.max_pods:
                raise ValueError(f"warm.{name} is {number}; it must not be more than maxPods, which is {self.max_pods}")
        return self

    @property
    def max_warm(self) -> int:
        """Maximum number of warm pods. `kubectl scale` can set `warm.min` above `warm.max`; then `warm.min` applies."""
        return max(self.warm.min, self.warm.max or 0)

    @property
    def follows_demand(self) -> bool:
        """Whether the number of warm pods follows demand."""
        return self.max_warm > self.warm.min


class Library(Model):
    """A library of a pool's image."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the distribution, in the form of package indexes: `python-dateutil`."""
    version: Annotated[str, Field(min_length=1, max_length=160, pattern=r"^[0-9A-Za-z!+._ ]+$")]
    """Version, such as `2.2.3`."""
    imports: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]],
        Field(max_length=MAX_IMPORTS),
    ]
    """Names that code imports, such as `dateutil`."""


class SandboxPoolStatus(Model):
    """State of the pool. Only the operator writes it."""

    observed_generation: int | None = None
    """Generation of the spec that this status describes."""
    replicas: int = 0
    """Warm and starting pods together, for the scale subresource."""
    selector: str = ""
    """Label selector of the pool's warm pods, for the scale subresource."""
    desired: int = 0
    """Desired number of warm and starting pods together. The condition Scaled gives the reason."""
    warm: int = 0
    """Pods that are ready and idle."""
    starting: int = 0
    """Pods that are not ready yet."""
    busy: int = 0
    """Pods that run an execution or are kept for a session."""
    owned: int = 0
    """Idle pods that were used and are kept for their owners."""
    sessions: int = 0
    """Pods that are kept for sessions, also while these run nothing. They count as busy."""
    queued: int = 0
    """Executions that wait for a pod."""
    expected_wait_seconds: float | None = None
    """Expected seconds until all waiting executions have a pod, estimated from recent waits. Not set if unknown."""
    arrival_rate: float = 0.0
    """Executions per second that need a pod: the higher rate of both windows, rounded to about 10 %."""
    startup_p95: Annotated[float | None, Field(alias="startupP95")] = None
    """95th percentile of the seconds from creation of a pod until it is warm, of recent pods."""
    warm_hit_rate: float | None = None
    """Share of executions that found a warm pod in the slow window, from 0 to 1. Not set if there were none.
    Executions that got a pod of their owner do not count."""
    reuse_rate: float | None = None
    """Share of executions that got a pod of their owner in the slow window, from 0 to 1. Not set if no pod was used
    again."""
    python: str | None = None
    """Python of the pool's image, such as `3.11.2`. Not set until a pod has become ready."""
    libraries: Annotated[list[Library], Field(max_length=MAX_LIBRARIES)] = Field(default_factory=list)
    """Libraries that code can import in each of the pool's pods, the largest first, at most 100. The operator asks one
    pod of each template for them."""
    conditions: list[Condition] = Field(default_factory=list)
    """Ready: the desired pods are warm. Scaled: reason for `desired`; False if a limit keeps it below demand. Isolated:
    the NetworkPolicy exists. TemplateHonoured: every field of `template` was applied. Current: no idle pod is being
    replaced."""


_MAX_LISTED: Final = 20


def format_languages(pools: Mapping[str, Language]) -> str:
    """Return pools with their languages for people: `default (python), scripts (typescript)`, at most 20."""
    named = [f"{name} ({language})" for name, language in sorted(pools.items())[:_MAX_LISTED]]
    more = [f"{len(pools) - _MAX_LISTED} more"] if len(pools) > _MAX_LISTED else []
    return ", ".join([*named, *more]) or "none"


UNOBSERVED_STATUS: Final[dict[str, Any]] = {
    "conditions": [
        {
            "type": "Ready",
            "status": str(ConditionStatus.UNKNOWN),
            "reason": str(Reason.NOT_OBSERVED),
            "message": Reason.NOT_OBSERVED.meaning,
            "lastTransitionTime": "1970-01-01T00:00:00.000000Z",
        }
    ]
}
"""Status of a pool that no operator has seen: it would be blank in a namespace that is not served."""

SELECTABLE_FIELDS: Final = (".spec.image", ".spec.runtimeClassName")
PRINTER_COLUMNS: list[dict[str, Any]] = [
    {"name": "Warm", "type": "integer", "jsonPath": ".status.warm"},
    {"name": "Desired", "type": "integer", "jsonPath": ".status.desired"},
    {"name": "Busy", "type": "integer", "jsonPath": ".status.busy"},
    {"name": "Owned", "type": "integer", "jsonPath": ".status.owned", "priority": 1},
    {"name": "Sessions", "type": "integer", "jsonPath": ".status.sessions", "priority": 1},
    {"name": "Queued", "type": "integer", "jsonPath": ".status.queued", "priority": 1},
    {"name": "Rate", "type": "number", "jsonPath": ".status.arrivalRate", "priority": 1},
    {"name": "Hits", "type": "number", "jsonPath": ".status.warmHitRate", "priority": 1},
    {"name": "Reused", "type": "number", "jsonPath": ".status.reuseRate", "priority": 1},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Reason", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].reason'},
    {"name": "Runtime", "type": "string", "jsonPath": ".spec.runtimeClassName"},
    {"name": "Image", "type": "string", "jsonPath": ".spec.image", "priority": 1},
    {"name": "Language", "type": "string", "jsonPath": ".spec.language", "priority": 1},
    {"name": "Python", "type": "string", "jsonPath": ".status.python", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
