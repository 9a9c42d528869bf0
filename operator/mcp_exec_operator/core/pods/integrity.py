"""Whether the API server stored a pod as it was requested, and whether it stays so. Pure functions.

Admission webhooks may change a new pod: service meshes and agents add containers, volumes or permissions. What confines
a sandbox, or can watch it, must be as requested. Defaults, scheduling and labels of others do not matter, nor does the
digest that a webhook for signatures adds to an image.

Later, whoever may write pods or their subresources can change labels, limits, images and ephemeral containers.
"""

import hashlib
import json
import re
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_api.constants import LABEL_EXECUTION, LABEL_OWNER, LABEL_SESSION, LABEL_STATE
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.template import is_weakening_annotation

_MAX_FIELDS: Final = 8
_FALSE_FIELDS: Final = (
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
)
"""Fields of a PodSpec that are absent or false."""
_EQUAL_FIELDS: Final = (
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostUsers",
    "initContainers",
    "ephemeralContainers",
    "resourceClaims",
    "restartPolicy",
    "runtimeClassName",
)
"""Fields of a PodSpec that are as requested; absent and empty are equal."""
_CONTAINER_FIELDS: Final = (
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "lifecycle",
    "livenessProbe",
    "name",
    "readinessProbe",
    "startupProbe",
    "stdin",
    "tty",
    "volumeDevices",
    "workingDir",
)
"""Fields of a container that are as requested."""
_SECCOMP_ANNOTATIONS: Final = (
    "seccomp.security.alpha.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
)
"""Annotations that repeat the pod's seccomp profile on API servers before Kubernetes 1.27. The profile is checked."""
_RUNTIME_DEFAULT: Final = "runtime/default"
_PINNED: Final = re.compile(r"([^@]+)@sha256:[0-9a-f]{64}")
_CHANGEABLE_FIELDS: Final = ("initContainers", "ephemeralContainers", "resources")
"""Fields of a PodSpec, besides its containers, that can be changed after its creation and that confine the pod."""
_CLUSTER_CONTEXT: Final = ("fsGroup", "fsGroupChangePolicy", "supplementalGroups", "seLinuxOptions")
"""Fields of a pod's security context that clusters assign to all pods."""
_USERS: Final = ("runAsUser", "runAsGroup")
_CHANGING_LABELS: Final = frozenset({LABEL_EXECUTION, LABEL_OWNER, LABEL_SESSION, LABEL_STATE})
"""Labels that the operator changes. None of them selects a sandbox's NetworkPolicies."""
_CLUSTER_LABELS: Final = ("topology.kubernetes.io/", "topology.k8s.io/")
"""Prefixes of labels that the API server copies from the node when a pod is bound to it."""


@dataclass(frozen=True, kw_only=True)
class ChangeableParts:
    """The parts of a pod that confine it and that can be changed after its creation.

    They refer to the pod's object. Comparing those of two observations takes microseconds.
    """

    labels: dict[str, str]
    containers: list[Object]
    others: tuple[Any, ...]
    """The values of `_CHANGEABLE_FIELDS`."""

    @classmethod
    def of(cls, pod: Object) -> "ChangeableParts":
        """Return the parts of a pod's object."""
        spec, labels = pod.get("spec") or {}, pod["metadata"].get("labels") or {}
        return cls(
            labels={name: value for name, value in labels.items() if _is_fixed_label(name)},
            containers=spec.get("containers") or [],
            others=tuple(spec.get(name) or None for name in _CHANGEABLE_FIELDS),
        )


def find_alterations(before: ChangeableParts, after: ChangeableParts) -> tuple[str, ...]:
    """Return the paths of the fields that somebody has changed in a pod since it was created; at most eight."""
    if before == after:
        return ()
    wanted, found = _read_parts(before), _read_parts(after)
    return tuple(sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)))[
        :_MAX_FIELDS
    ]


def digest_confinement(pod: Object) -> str:
    """Return a digest of all that confines a pod, which is the same for as long as nobody changes that."""
    fields = _read_confinement(pod) | _read_parts(ChangeableParts.of(pod))
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def find_changes(requested: Object, stored: Object) -> tuple[str, ...]:
    """Return the paths of the fields of a stored pod that weaken or watch the requested one; at most eight."""
    stored = _align_images(requested, stored)
    if not any(name in context for context in _read_contexts(requested) for name in _USERS):
        # requested without a user, which the cluster assigns. `runAsNonRoot` is as requested, so it is not root
        stored = deepcopy(stored)
        for context in _read_contexts(stored):
            for name in _USERS:
                context.pop(name, None)
    wanted, found = _read_confinement(requested), _read_confinement(stored)
    changed = {path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)}
    labels = stored["metadata"].get("labels") or {}
    for name, value in requested["metadata"]["labels"].items():
        if labels.get(name) != value:
            changed.add(f"metadata.labels.{name}")
    given = requested["metadata"].get("annotations") or {}
    for name, value in (stored["metadata"].get("annotations") or {}).items():
        repeats = value == _RUNTIME_DEFAULT and name.startswith(_SECCOMP_ANNOTATIONS)
        if given.get(name) != value and is_weakening_annotation(name) and not repeats:
            changed.add(f"metadata.annotations.{name}")
    return tuple(sorted(changed)[:_MAX_FIELDS])


def _read_contexts(pod: Object) -> list[Object]:
    """Return the security contexts of a pod and its containers."""
    spec = pod.get("spec") or {}
    parts = [spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return [part["securityContext"] for part in parts if part.get("securityContext")]


def _align_images(requested: Object, stored: Object) -> Object:
    """Return the stored pod with the requested images, where they are the same but for a digest."""
    spec = dict(stored.get("spec") or {})
    for kind in ("containers", "initContainers"):
        wanted, found = (requested.get("spec") or {}).get(kind) or (), spec.get(kind) or ()
        if len(wanted) == len(found) > 0:
            spec[kind] = [
                ours | {"image": theirs.get("image")} if _is_pinned(theirs.get("image"), ours.get("image")) else ours
                for theirs, ours in zip(wanted, found, strict=True)
            ]
    return {**stored, "spec": spec}


def _is_pinned(requested: str | None, stored: str | None) -> bool:
    """Return whether a stored image is the requested one by digest. A requested digest stands as it is."""
    found = _PINNED.fullmatch(stored or "")
    if not requested or "@" in requested or found is None:
        return False
    path, slash, name = requested.rpartition("/")
    repository, _, tag = name.partition(":")
    names = {repository, f"{repository}:{tag or 'latest'}"}
    return found[1] in {f"{path}{slash}{each}" for each in names}


def _read_confinement(pod: Object) -> dict[str, Any]:
    """Return what confines a pod, by path. Absent and empty fields are left out."""
    spec = pod.get("spec") or {}
    fields: dict[str, Any] = {f"spec.{name}": spec.get(name) or None for name in _FALSE_FIELDS}
    fields |= {f"spec.{name}": spec.get(name) for name in _EQUAL_FIELDS}
    account = spec.get("serviceAccountName")
    fields["spec.serviceAccountName"] = None if account == "default" else account
    fields |= _read_context("spec.securityContext", spec.get("securityContext"))
    for volume in spec.get("volumes") or ():
        kinds = sorted(kind for kind in volume if kind != "name")
        fields[f"spec.volumes.{volume.get('name')}"] = (kinds, (volume.get("emptyDir") or {}).get("medium") or None)
    for index, container in enumerate(spec.get("containers") or ()):
        fields |= _read_container(f"spec.containers[{index}]", container)
    # not by equality with a tuple of empty values: 0 and False mean something, and 0 equals False
    return {path: value for path, value in fields.items() if value is not None and value not in ("", [], {})}


def _is_fixed_label(name: str) -> bool:
    return name not in _CHANGING_LABELS and not name.startswith(_CLUSTER_LABELS)


def _read_parts(parts: ChangeableParts) -> dict[str, Any]:
    """Return the parts by path. Fields of containers that a new API server adds by default are left out."""
    fields: dict[str, Any] = {f"metadata.labels.{name}": value for name, value in parts.labels.items()}
    fields |= {f"spec.{name}": value for name, value in zip(_CHANGEABLE_FIELDS, parts.others, strict=True)}
    for index, container in enumerate(parts.containers):
        path = f"spec.containers[{index}]"
        fields |= _read_container(path, container) | {f"{path}.resources": container.get("resources")}
    return {path: value for path, value in fields.items() if value not in (None, "", [], {})}


def _read_container(path: str, container: Object) -> dict[str, Any]:
    fields = {f"{path}.{name}": container.get(name) for name in _CONTAINER_FIELDS}
    mounts = container.get("volumeMounts") or ()
    for mount in mounts:
        fields[f"{path}.volumeMounts.{mount.get('name')}:{mount.get('mountPath')}"] = (
            bool(mount.get("readOnly")),
            {name: value for name, value in mount.items() if name not in ("name", "mountPath", "readOnly")},
        )
    fields[f"{path}.ports"] = [port["hostPort"] for port in container.get("ports") or () if port.get("hostPort")]
    context = dict(container.get("securityContext") or {})
    if context.get("procMount") == "Default":
        del context["procMount"]
    fields |= {f"{path}.securityContext.{name}": value for name, value in context.items()}
    return fields


def _read_context(path: str, context: Object | None) -> dict[str, Any]:
    fields = {}
    for name, value in (context or {}).items():
        if name == "seLinuxOptions" and set(value) <= {"level"}:
            continue
        if name != "seLinuxOptions" and name in _CLUSTER_CONTEXT:
            continue
        fields[f"{path}.{name}"] = value
    return fields
