"""SandboxPool: pods of one kind that stand ready, each for one execution."""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from mcp_exec_api.code_findings import CodeCheck
from mcp_exec_api.constants import DEFAULT_MAX_QUEUED, MAX_TIMEOUT_SECONDS
from mcp_exec_api.meta import Condition, Model, ToolPattern
from mcp_exec_api.quantity import Quantity, parse_quantity

FreeObject = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


class OnEmpty(StrEnum):
    """What an execution does that finds no warm pod."""

    COLD_START = "ColdStart"
    WAIT = "Wait"


class ResourceList(Model):
    """Amounts of what a sandbox may use."""

    cpu: Quantity | None = None
    """Cores, such as `1` or `250m`."""
    memory: Quantity | None = None
    """Bytes, such as `512Mi`."""
    ephemeral_storage: Annotated[Quantity | None, Field(alias="ephemeral-storage")] = None
    """Bytes of disk, all writable volumes together."""


class Resources(Model):
    """Limits and requests of the sandbox container."""

    limits: ResourceList = ResourceList(cpu="1", memory="512Mi", ephemeral_storage="512Mi")
    """What it can't exceed; a limit that is not given here has its default."""
    requests: ResourceList = ResourceList(cpu="50m", memory="64Mi", ephemeral_storage="64Mi")
    """What the scheduler keeps for it."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        """A list that names only some resources keeps the defaults of the others, so that none is ever unlimited."""
        if not isinstance(data, dict):
            return data
        filled = dict(data)
        for name in ("limits", "requests"):
            if isinstance(given := filled.get(name), dict):
                default = cls.model_fields[name].default.to_api()
                filled[name] = default | {key.replace("ephemeral_", "ephemeral-"): v for key, v in given.items()}
        return filled


class Warm(Model):
    """How many pods stand ready."""

    min: Annotated[int, Field(ge=0, le=5000)] = 3
    """Pods that are kept warm, whatever the demand; `kubectl scale` sets it."""
    max: Annotated[int | None, Field(ge=0, le=5000)] = None
    """Pods that are kept warm at most where demand asks for more; none, or less than `min`, means `min`."""


class Scaling(Model):
    """How the number of warm pods follows demand, between `warm.min` and `warm.max`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.slowWindowSeconds >= self.fastWindowSeconds",
                    "message": "spec.scaling.slowWindowSeconds can't be less than fastWindowSeconds",
                }
            ]
        }
    )

    headroom: Annotated[int, Field(ge=0, le=1000)] = 2
    """Pods that are kept beyond those that are expected to be asked for, while anything is asked for at all."""
    stable_seconds: Annotated[int, Field(ge=0, le=86400)] = 180
    """Seconds for which fewer pods must have been enough before there are fewer."""
    fast_window_seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """Seconds over which the rate of arrivals is measured to see a burst."""
    slow_window_seconds: Annotated[int, Field(ge=1, le=86400)] = 60
    """Seconds over which it is measured to see steady demand; the higher rate counts."""
    refill_per_second: Annotated[float | None, Field(ge=0.1, le=1000)] = None
    """Pods a second that are made to stand warm; none means 50, or no bound where the pool's size is fixed."""
    refill_burst: Annotated[int, Field(ge=1, le=5000)] = 100
    """Pods that are made to stand warm at once, after a time in which none were."""

    @model_validator(mode="after")
    def _slow_is_not_faster(self) -> Self:
        if self.slow_window_seconds < self.fast_window_seconds:
            raise ValueError(
                f"slowWindowSeconds is {self.slow_window_seconds}, less than fastWindowSeconds,"
                f" {self.fast_window_seconds}"
            )
        return self


class TemplateMetadata(Model):
    """Labels and annotations that every pod of the pool gets; those of mcp-exec itself can't be set."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations."""


class PodTemplate(Model):
    """Laid over the pool's pods before their security fields are set, which it can therefore not change."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations."""
    spec: FreeObject = Field(default_factory=dict)
    """A partial PodSpec; its container named `sandbox` is merged with the sandbox container."""


class Toleration(Model):
    """A taint that the pods tolerate, as in a PodSpec."""

    key: str | None = None
    """The taint's key; none means every key."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How the value is compared."""
    value: str | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; none means every effect."""
    toleration_seconds: int | None = None
    """Seconds that a NoExecute taint is tolerated."""


class ImagePullSecret(Model):
    """A Secret with credentials of a registry."""

    name: str
    """The Secret's name."""


class Variant(Model):
    """One side of an A/B: what sets its pods apart from the pool's, and how many callers get them."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Its name, in the status of executions and pools, in metrics and on its pods."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """Its share of callers and of warm pods, as part of the sum of all weights; 0 means none of either."""
    image: Annotated[str | None, Field(min_length=1, max_length=512)] = None
    """In the place of the pool's."""
    runtime_class_name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """In the place of the pool's."""
    resources: Resources | None = None
    """In the place of the pool's, all of them: what is not given here has its default."""


_VARIANT_RULES: dict[str, JsonValue] = {
    "x-kubernetes-validations": [
        {
            "rule": "size(self) == 0 || self.exists(each, each.weight > 0)",
            "message": "spec.variants: at least one needs a weight of more than 0",
        },
        {
            "rule": "self.all(each, self.exists_one(other, other.name == each.name))",
            "message": "spec.variants: each needs a name of its own",
        },
    ]
}


class PoolTools(Model):
    """Which tools the pool's executions may call, whatever they ask for."""

    allow: Annotated[list[ToolPattern], Field(max_length=256)] = Field(default_factory=lambda: ["*.*"])
    """Tools that may be called, such as `github.*`."""
    deny: Annotated[list[ToolPattern], Field(max_length=256)] = Field(default_factory=list)
    """Tools that may not, even where they are allowed above."""


class SandboxPoolSpec(Model):
    """What the pods are like and how many stand ready."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.warm.max) || self.warm.max <= self.maxPods",
                    "message": "spec.warm.max can't be more than spec.maxPods",
                }
            ]
        }
    )

    image: Annotated[str, Field(min_length=1, max_length=512)]
    """The sandbox image."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls it."""
    image_pull_secrets: Annotated[list[ImagePullSecret], Field(max_length=16)] = Field(default_factory=list)
    """Secrets with credentials of its registry."""
    runtime_class_name: Annotated[str | None, Field(max_length=253)] = None
    """The RuntimeClass, such as one of gVisor or Kata; none means the node's default runtime."""
    resources: Resources = Resources()
    """Limits and requests of each sandbox."""
    workspace_size: Quantity = "256Mi"
    """Bytes that the code may keep in `/workspace` and `/tmp` together."""
    max_processes: Annotated[int, Field(ge=8, le=1024)] = 64
    """Processes and threads that a sandbox may have."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: Annotated[list[Toleration], Field(max_length=64)] = Field(default_factory=list)
    """Taints that the pods tolerate."""
    affinity: FreeObject = Field(default_factory=dict)
    """An Affinity, as in a PodSpec."""
    priority_class_name: Annotated[str | None, Field(max_length=253)] = None
    """The pods' PriorityClass."""
    template: PodTemplate = PodTemplate()
    """What else the pods should have."""
    variants: Annotated[list[Variant], Field(max_length=8, json_schema_extra=_VARIANT_RULES)] = Field(
        default_factory=list
    )
    """Kinds of pods between which the callers are divided, by weight; none means that all pods are alike."""
    warm: Warm = Warm()
    """How many pods stand ready."""
    scaling: Scaling = Scaling()
    """How that number follows demand, where `warm.max` is more than `warm.min`."""
    on_empty: OnEmpty = OnEmpty.COLD_START
    """What an execution does that finds none ready: make a pod of its own, or wait for the next one."""
    tools: PoolTools = PoolTools()
    """Which tools its executions may call."""
    code_check: CodeCheck = CodeCheck()
    """What is looked for in the code of its executions before it runs."""
    max_timeout_seconds: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_SECONDS)] = MAX_TIMEOUT_SECONDS
    """The longest `timeoutSeconds` that an execution may ask for."""
    max_pods: Annotated[int, Field(ge=1, le=10000)] = 100
    """Pods that the pool may have in all: warm, starting and busy."""
    max_queued: Annotated[int, Field(ge=1, le=10000)] = DEFAULT_MAX_QUEUED
    """Executions that may wait for a pod; one more fails at once, with the reason QueueFull."""
    max_idle_age_seconds: Annotated[int | None, Field(ge=60, le=366 * 24 * 3600)] = None
    """Seconds after which an idle pod is replaced, spread over the last fifth of them; none means never."""

    @field_validator("workspace_size")
    @classmethod
    def _storage_is_some(cls, size: str) -> str:
        if parse_quantity(size) < 1024 * 1024:
            raise ValueError(f"workspaceSize is {size}, at least 1Mi is needed")
        return size

    @model_validator(mode="after")
    def _warm_pods_have_room(self) -> Self:
        if self.warm.max is not None and self.warm.max > self.max_pods:
            raise ValueError(f"warm.max is {self.warm.max}, more than maxPods, {self.max_pods}")
        return self

    @field_validator("variants")
    @classmethod
    def _variants_differ(cls, variants: list[Variant]) -> list[Variant]:
        names = [variant.name for variant in variants]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"more than one has the name {', '.join(twice)}")
        if variants and not any(variant.weight for variant in variants):
            raise ValueError("the weights are all 0, at least one needs more")
        return variants

    def build_variant_spec(self, variant: Variant) -> "SandboxPoolSpec":
        """The spec of a pool whose pods are all like the variant's."""
        given = {name: getattr(variant, name) for name in ("image", "runtime_class_name", "resources")}
        return self.model_copy(
            update={"variants": [], **{name: value for name, value in given.items() if value is not None}}
        )

    @property
    def max_warm(self) -> int:
        """Pods that are kept warm at most. `kubectl scale` may lift `warm.min` over `warm.max`, which then follows."""
        return max(self.warm.min, self.warm.max or 0)

    @property
    def follows_demand(self) -> bool:
        """Whether the number of warm pods is not fixed."""
        return self.max_warm > self.warm.min


class VariantStatus(Model):
    """How one variant is."""

    name: str
    """Its name."""
    weight: int
    """Its weight."""
    desired: int
    """Its part of the pool's desired pods."""
    warm: int
    """Its pods that stand ready."""
    starting: int
    """Its pods that are not ready yet."""
    busy: int
    """Its pods that run an execution."""
    in_rotation: bool
    """Whether callers are assigned to it."""
    reason: str | None = None
    """Why it was taken out of rotation: StartFailures or ErrorRate."""
    message: str | None = None
    """The same, for people."""
    template: str | None = None
    """The hash of its pods."""


class SandboxPoolStatus(Model):
    """How the pool is. Written by the operator alone."""

    observed_generation: int | None = None
    """The generation of the spec that the rest speaks of."""
    replicas: int = 0
    """Pods that are warm or starting: what `kubectl scale` compares with."""
    selector: str = ""
    """Label selector of the pool's warm pods, for the scale subresource."""
    desired: int = 0
    """Pods that should be warm or on their way; the condition Scaled says why."""
    warm: int = 0
    """Pods that stand ready."""
    starting: int = 0
    """Pods that are not ready yet."""
    busy: int = 0
    """Pods that run an execution."""
    queued: int = 0
    """Executions that wait for a pod."""
    expected_wait_seconds: float | None = None
    """Seconds until all that wait have a pod, by how fast they got one lately; not set where that is not known."""
    arrival_rate: float = 0.0
    """Executions a second that ask for a pod, the higher of both windows, rounded to about a tenth of it."""
    startup_p95: Annotated[float | None, Field(alias="startupP95")] = None
    """Seconds from asking for a pod until it is warm that 95 of 100 pods don't exceed, of the last ones made."""
    warm_hit_rate: float | None = None
    """Share of executions that found a warm pod, 0 to 1, in the slow window; none where none asked for one."""
    variants: list[VariantStatus] = Field(default_factory=list)
    """The same by variant."""
    restored: str | None = None
    """The value of the annotation `mcp-exec.dev/restore-variant` that was acted upon last."""
    conditions: list[Condition] = Field(default_factory=list)
    """Ready (as many pods are warm as should be, or why not), Scaled (why so many should be), Isolated (the
    NetworkPolicy stands), TemplateHonoured, Current (no idle pod is being replaced, or which and why), and, with
    variants, VariantsHealthy (none was taken out of rotation, or which and why)."""


PRINTER_COLUMNS: list[dict[str, Any]] = [
    {"name": "Warm", "type": "integer", "jsonPath": ".status.warm"},
    {"name": "Desired", "type": "integer", "jsonPath": ".status.desired"},
    {"name": "Busy", "type": "integer", "jsonPath": ".status.busy"},
    {"name": "Queued", "type": "integer", "jsonPath": ".status.queued", "priority": 1},
    {"name": "Rate", "type": "number", "jsonPath": ".status.arrivalRate", "priority": 1},
    {"name": "Hits", "type": "number", "jsonPath": ".status.warmHitRate", "priority": 1},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Reason", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].reason'},
    {"name": "Runtime", "type": "string", "jsonPath": ".spec.runtimeClassName"},
    {"name": "Image", "type": "string", "jsonPath": ".spec.image", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
