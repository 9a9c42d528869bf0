"""Merge of a pool's template into its pods: a list of allowed fields. The others are refused and reported."""

from collections.abc import Iterator
from typing import Any, Final

from mcp_exec_api.constants import GROUP, SANDBOX_CONTAINER
from mcp_exec_common.kube.objects import Object

POD_FIELDS: Final = frozenset(
    {
        "affinity",
        "imagePullSecrets",
        "nodeSelector",
        "overhead",
        "preemptionPolicy",
        "priorityClassName",
        "schedulerName",
        "tolerations",
        "topologySpreadConstraints",
    }
)
"""Fields of a PodSpec that are copied from a template unchanged."""

_OUR_LABELS: Final = ("app.kubernetes.io/", f"{GROUP}/")
_OUR_PATHS: Final = ("/workspace", "/tmp", "/opt/mcp-exec", "/proc", "/sys", "/dev")  # noqa: S108
_OUR_VARIABLES: Final = ("MCP_EXEC_", "PYTHON", "LD_")
_IDENTITY_LABELS: Final = frozenset({"aadpodidbinding"})
"""Keys without a prefix that webhooks or agents of clouds act on."""
_WEAKENING_ANNOTATIONS: Final = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    "dev.gvisor.",
    "io.katacontainers.",
    "io.kubernetes.",
    "k8s.v1.cni.cncf.io/",
)
"""Prefixes of annotations that change a security profile, the isolation of a runtime, or the network. Never allowed."""
_NETWORK_STATUS: Final = ("k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status")
"""Annotations with these prefixes that network plugins write and nobody reads."""


def merge_template(pod: Object, template: Object, *, prefixes: tuple[str, ...] = ()) -> Object:
    """Return the pod with the allowed fields of a template merged into it. `template` is a PodTemplate as JSON data.

    Of labels and annotations, keys without prefix and dots are allowed, and those with one of `prefixes`: meshes,
    secret injectors and identity webhooks act on keys with prefixes of their own, and no list of these is complete.
    """
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    merged_spec = pod["spec"] | {name: value for name, value in spec.items() if name in POD_FIELDS and value}
    if ours := pod["spec"].get("nodeSelector"):
        merged_spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **ours}
    merged_spec["tolerations"] = [*pod["spec"]["tolerations"], *_list(spec, "tolerations")]
    volumes = [volume for volume in _list(spec, "volumes") if _is_plain_volume(volume)]
    merged_spec["volumes"] = [*pod["spec"]["volumes"], *volumes]
    own = next((each for each in _list(spec, "containers") if each.get("name") == SANDBOX_CONTAINER), {})
    names = {volume["name"] for volume in volumes}
    merged_spec["containers"] = [_merge_container(pod["spec"]["containers"][0], own, names)]
    return {
        **pod,
        "metadata": pod["metadata"]
        | {
            "labels": select_labels(template, prefixes=prefixes) | pod["metadata"]["labels"],
            "annotations": _select_keys(_dict(metadata, "annotations"), prefixes) | pod["metadata"]["annotations"],
        },
        "spec": merged_spec,
    }


def select_labels(template: Object, *, prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the allowed labels of a template."""
    return _select_keys(_dict(template.get("metadata") or {}, "labels"), prefixes)


def refused_fields(template: Object, pod: Object) -> tuple[str, ...]:
    """Return the paths of the template that the finished pod does not have."""
    return tuple(sorted(set(_missing(template, pod, ""))))


def _merge_container(base: Object, own: Object, volumes: set[str]) -> Object:
    variables = [each for each in _list(own, "env") if _is_plain_variable(each)]
    mounts = [each for each in _list(own, "volumeMounts") if _is_plain_mount(each, volumes)]
    resources = {
        kind: {**base["resources"][kind], **_dict(_dict(own, "resources"), kind)} for kind in ("limits", "requests")
    }
    return {
        **base,
        "env": [*variables, *base["env"]],
        "volumeMounts": [*base["volumeMounts"], *mounts],
        "resources": resources,
    }


def _is_plain_variable(variable: Object) -> bool:
    name = str(variable.get("name", ""))
    return set(variable) <= {"name", "value"} and bool(name) and not name.startswith(_OUR_VARIABLES)


def _is_plain_volume(volume: Object) -> bool:
    name = volume.get("name")
    return set(volume) == {"name", "emptyDir"} and isinstance(name, str) and name not in ("workspace", "tmp")


def _is_plain_mount(mount: Object, volumes: set[str]) -> bool:
    path = str(mount.get("mountPath", "")).rstrip("/")
    inside = any(path == ours or path.startswith(ours + "/") for ours in _OUR_PATHS)
    plain = set(mount) <= {"name", "mountPath", "readOnly"} and str(mount.get("name")) in volumes
    return plain and bool(path) and not inside


def _missing(wanted: Any, given: Any, path: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(given, dict):
        for name, value in wanted.items():
            yield from _missing(value, given.get(name), f"{path}.{name}" if path else name)
    elif isinstance(wanted, list) and isinstance(given, list):
        for index, item in enumerate(wanted):
            yield from _missing_item(item, given, f"{path}[{index}]")
    elif wanted != given and wanted not in ({}, [], None):
        yield path


def _missing_item(wanted: Any, given: list[Any], path: str) -> Iterator[str]:
    if wanted in given:
        return
    name = wanted.get("name") if isinstance(wanted, dict) else None
    twin = next((each for each in given if isinstance(each, dict) and name and each.get("name") == name), None)
    if twin is None:
        yield path
    else:
        yield from _missing(wanted, twin, path)


def is_weakening_annotation(key: str) -> bool:
    """Return whether an annotation may change a security profile, the isolation of a runtime, or the network."""
    return key.startswith(_WEAKENING_ANNOTATIONS) and key not in _NETWORK_STATUS


def _select_keys(source: Object, prefixes: tuple[str, ...]) -> Object:
    return {key: value for key, value in source.items() if _is_allowed_key(str(key), prefixes)}


def _is_allowed_key(key: str, prefixes: tuple[str, ...]) -> bool:
    prefix, slash, _ = key.partition("/")
    if not slash:
        # runtimes read keys with dots: dev.gvisor.flag.debug, run.oci.handler, org.systemd.property.CPUQuota
        return "." not in key and key not in _IDENTITY_LABELS
    return prefix in prefixes and not key.startswith(_OUR_LABELS) and not is_weakening_annotation(key)


def _list(source: Object, name: str) -> list[Object]:
    found = source.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _dict(source: Object, name: str) -> Object:
    found = source.get(name)
    return found if isinstance(found, dict) else {}
