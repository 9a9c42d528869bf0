"""Types of values, and values that operator, gateway and broker share."""

from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_exec_api.meta import IMAGE, REPOSITORY, Model
from mcp_exec_api.sandbox_pool import FreeObject, Toleration

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Names = Annotated[list[Name], Field(json_schema_extra={"uniqueItems": True})]
RuntimeName = Annotated[str, Field(max_length=253, pattern=r"^(NodeDefault|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$")]
OptionalName = Annotated[str, Field(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
Amount = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")] | Annotated[float, Field(ge=0)]
Seconds = Annotated[int, Field(ge=1, le=3600)]
Port = Annotated[int, Field(ge=1, le=65535)]
Size = Annotated[str, Field(pattern=r"^[0-9]+(Ki|Mi|Gi|Ti)$")]
OptionalImage = Annotated[str, Field(max_length=512, pattern=rf"^({IMAGE})?$")]
Digest = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]
Tag = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")]
Peers = Annotated[list[FreeObject], Field(max_length=64)]


class SettingsValues(Model):
    """An object whose values are declared by settings of the processes."""


class ImageValues(Model):
    """A container image."""

    repository: Annotated[str, Field(pattern=rf"^({REPOSITORY})?$")] = ""
    """Image name without the tag. Empty means `mcp-exec-NAME` in `images.repository`."""
    tag: Tag = ""
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


class ServiceAccountValues(Model):
    """A ServiceAccount."""

    create: bool = True
    """Create it. If false, it has to exist; the chart gives it the rights. Secrets that the operator creates are
    deleted with its ServiceAccount."""
    name: OptionalName = ""
    """Name of the ServiceAccount. Empty means that of the Deployment."""


def _spread(key: str) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}


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
    topology_spread_constraints: Annotated[list[FreeObject], Field(max_length=16)] = [
        _spread("topology.kubernetes.io/zone"),
        _spread("kubernetes.io/hostname"),
    ]
    """Spread of the pods over zones and nodes, as in a PodSpec. A constraint without a `labelSelector` counts the pods
    of the same Deployment."""
    priority_class_name: OptionalName = ""
    """PriorityClass of the pods. Empty means that of `priorityClass`, or else the cluster's default."""
    dns_config: FreeObject = Field(default_factory=dict)
    """DNS parameters, as in a PodSpec, for example a shorter list of search domains."""
    pod_labels: dict[str, str] = Field(default_factory=dict)
    """Additional labels of the pods."""
    pod_annotations: dict[str, str] = Field(default_factory=dict)
    """Additional annotations of the pods."""
    service_account: ServiceAccountValues = ServiceAccountValues()
    """The ServiceAccount."""
    service_account_annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the ServiceAccount that the chart creates."""
    extra_env: Annotated[list[EnvVarValues], Field(max_length=64)] = Field(default_factory=list)
    """Additional environment variables, for example TZ."""
    extra_volumes: Annotated[list[FreeObject], Field(max_length=32)] = Field(default_factory=list)
    """Additional volumes of the pods, as in a PodSpec."""
    extra_volume_mounts: Annotated[list[FreeObject], Field(max_length=32)] = Field(default_factory=list)
    """Mounts of `extraVolumes` in the container. None may be at, above or below a folder that the chart uses."""
