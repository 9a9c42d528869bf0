"""What the operator can be told by its environment."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from mcp_exec_api.constants import OPERATOR_PORT
from mcp_exec_common.process.settings import ProcessSettings


class Settings(ProcessSettings):
    """The operator's settings, each from a variable with the prefix `MCP_EXEC_`. Read once, in `main()`."""

    release_namespace: str
    """Namespace in which operator and gateway run: pods there reach the sandboxes."""
    port: Annotated[int, Field(ge=0, le=65535)] = OPERATOR_PORT
    """Port of `/healthz`, `/readyz` and `/metrics`."""
    bind_timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that an execution waits, since its arrival or since the pool last gave a pod to one that waited, before
    it fails with the reason why there is none. In a queue that moves it waits 20 times as long at most."""
    sweep_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Seconds between two sweeps, which compare everything with fresh lists."""
    pod_start_timeout_seconds: Annotated[float, Field(gt=0)] = 120.0
    """Seconds that a pod may take until its supervisor answers, before it is replaced."""
    watch_nodes: bool = True
    """Whether nodes are watched, cluster-wide: pods on those that are cordoned or lost are replaced early."""
    verify_isolation: bool = True
    """Whether a sandbox must find, before it is used, that it can't reach the API server."""
    broker_service: str = ""
    """The broker's Service in the release's namespace; empty means that there is none, and no execution has tools."""
    servers_image: str = ""
    """The image with the bridge that is put beside stdio servers; empty means that none can be run."""
    servers_image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls that image."""
    wrappers_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which the wrappers of a namespace's tools are asked for again, where nothing called for it."""
    shutdown_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Seconds that writes under way have to finish when the operator is asked to stop."""
    api_wait_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that the API server may stay away when the operator starts."""
    pod_name: str = ""
    """The pod's name: with its uid, who this operator is in the election; empty means the host's name."""
    pod_uid: str = ""
    """The pod's uid; empty means a new one each time that the process starts."""
    lease_name: Annotated[str, Field(min_length=1)] = "mcp-exec-operator"
    """Lease of the release's namespace by which one operator is elected; the others stand by."""
    lease_duration_seconds: Annotated[int, Field(ge=1)] = 15
    """Seconds without a renewal after which another operator takes over."""
    lease_renew_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Seconds without a renewal after which the leader ends; fewer than `lease_duration_seconds`."""
    lease_retry_seconds: Annotated[float, Field(gt=0)] = 2.0
    """Seconds between two renewals, or two looks of who stands by; fewer than `lease_renew_seconds`."""

    @field_validator("lease_renew_seconds", "lease_retry_seconds")
    @classmethod
    def _ordered(cls, value: float, info: ValidationInfo) -> float:
        longer = "lease_duration_seconds" if info.field_name == "lease_renew_seconds" else "lease_renew_seconds"
        if value >= info.data.get(longer, float("inf")):
            raise ValueError(f"it must be less than {longer}, which is {info.data[longer]:g}")
        return value
