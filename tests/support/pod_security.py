"""Pod Security admission at its strictest level, which a devcluster's Kubernetes 1.20 does not have.

https://kubernetes.io/docs/concepts/security/pod-security-standards/, `restricted`; the chart enforces it in the
namespaces that it makes. SELinux, AppArmor and what concerns Windows is not looked at: nothing here sets it.
"""

from typing import Any

Object = dict[str, Any]

_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
_SECCOMP = ("RuntimeDefault", "Localhost")


def violations(pod: Object) -> list[str]:
    """Return what `restricted` forbids or misses in a pod's spec; nothing for a pod that is admitted."""
    found = [f"{name} is true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    found += [f"volume {each['name']}" for each in pod.get("volumes", ()) if not _VOLUMES & set(each)]
    whole = pod.get("securityContext") or {}
    if whole.get("sysctls"):
        found.append("sysctls are set")
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        found += [f"{container['name']}: {problem}" for problem in _of_container(container, whole)]
    return found


def pods_of(manifest: Object) -> list[Object]:
    """Return the specs of the pods that a manifest creates."""
    if manifest["kind"] == "Pod":
        return [manifest["spec"]]
    workload = manifest["kind"] in ("DaemonSet", "Deployment", "Job")
    template = manifest.get("spec", {}).get("template", {}) if workload else {}
    return [template["spec"]] if template else []


def _of_container(container: Object, whole: Object) -> list[str]:
    own = container.get("securityContext") or {}
    capabilities = own.get("capabilities") or {}
    seccomp = (own.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type")
    ports = container.get("ports", ())
    wrong = {
        "it is privileged": bool(own.get("privileged")),
        "allowPrivilegeEscalation is not false": own.get("allowPrivilegeEscalation") is not False,
        "capabilities are not dropped": "ALL" not in capabilities.get("drop", ()),
        "capabilities are added": bool(set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}),
        "runAsNonRoot is not true": own.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True,
        "runAsUser is 0": own.get("runAsUser", whole.get("runAsUser")) == 0,
        "seccompProfile is not set": seccomp not in _SECCOMP,
        "it has a host port": any(port.get("hostPort") for port in ports),
        "procMount is set": own.get("procMount", "Default") != "Default",
    }
    return [problem for problem, holds in wrong.items() if holds]
