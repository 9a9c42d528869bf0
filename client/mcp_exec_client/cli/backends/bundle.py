"""A file for whoever is asked for help: what doctor found, versions, logs, Events and objects of a release.

It has no Secrets, no code and no output of executions, no logs of sandboxes, and no values of environment variables or
headers but those that the chart sets. Each list has at most 500 objects, and each log at most 2,000 lines.
"""

import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mcp_exec_api.constants import EXECUTIONS, POOLS, ROLLOUTS, SESSIONS, TOOL_SERVERS
from mcp_exec_api.wire.version import RELEASE
from mcp_exec_client.cli.backends.release_checks import APPS_GROUP, LEASES_GROUP, OF_RELEASES
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object

MAX_OBJECTS: Final = 500
MAX_LOG_LINES: Final = 2000
_MAX_LOG_BYTES: Final = 2 * 1024 * 1024
_FOLDER: Final = "mcp-exec-doctor"
_OWN_VARIABLE: Final = "MCP_EXEC_"
"""Variables that the chart sets. Their values are settings, and no credentials."""
_REMOVED: Final = "REMOVED"
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_NETWORKING_GROUP: Final = "networking.k8s.io/v1"
_OF_RELEASE: Final = (
    ("deployments", APPS_GROUP, OF_RELEASES),
    ("replicasets", APPS_GROUP, OF_RELEASES),
    ("pods", None, OF_RELEASES),
    ("persistentvolumeclaims", None, OF_RELEASES),
    ("networkpolicies", _NETWORKING_GROUP, OF_RELEASES),
    ("leases", LEASES_GROUP, ""),
    ("resourcequotas", None, ""),
    ("limitranges", None, ""),
    ("events", None, ""),
)
"""Kinds in the namespace of the release, with their groups and selectors of labels."""
_OF_NAMESPACE: Final = (
    ("pods", None, ""),
    ("networkpolicies", _NETWORKING_GROUP, ""),
    ("leases", LEASES_GROUP, ""),
    ("resourcequotas", None, ""),
    ("limitranges", None, ""),
    ("events", None, ""),
)
_OF_CALLERS: Final = frozenset({"Description", "User"})
"""Columns of executions with what callers wrote."""
_OWN_KINDS: Final = (POOLS, TOOL_SERVERS, SESSIONS, ROLLOUTS)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The files of a bundle, by their path in it."""

    files: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """What could not be read, with the reason."""

    def write(self, path: Path) -> int:
        """Write the files to an archive that only its owner may read, and return their number.

        Raises OSError, for example if there is such a file already.
        """
        files = self.files | ({"missing.txt": "\n".join(self.missing) + "\n"} if self.missing else {})
        with (
            os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened,
            tarfile.open(fileobj=opened, mode="w:gz") as archive,
        ):
            for name, text in files.items():
                body = text.encode(errors="replace")
                entry = tarfile.TarInfo(f"{_FOLDER}/{name}")
                entry.size, entry.mode = len(body), 0o600
                archive.addfile(entry, io.BytesIO(body))
        return len(files)

    async def collect(self, kube: KubeClient, *, release: str, namespace: str) -> None:
        """Add versions, and objects, Events and logs of the served namespace and, if it is known, the release's."""
        await self._add_versions(kube)
        for folder, where, kinds in (("release", release, _OF_RELEASE), ("namespace", namespace, _OF_NAMESPACE)):
            if not where:
                self.missing.append(f"{folder}: the namespace of the release is not known")
                continue
            for kind, group, selector in kinds:
                path = resource_path(kind, namespace=where, group=group)
                items = await self._add_list(kube, f"{folder}/{kind}", path, selector=selector)
                if folder == "release" and kind == "pods":
                    await self._add_logs(kube, items)
        for kind in _OWN_KINDS:
            await self._add_list(kube, f"namespace/{kind}", custom_resource_path(kind, namespace=namespace))
        await self._add_executions(kube, custom_resource_path(EXECUTIONS, namespace=namespace))

    async def _add_versions(self, kube: KubeClient) -> None:
        versions: Object = {"mcp-exec": RELEASE}
        try:
            versions["kubernetes"] = await kube.get("/version")
        except ApiError as error:
            self.missing.append(f"versions: {error}")
        self.files["versions.json"] = json.dumps(versions, indent=1)

    async def _add_list(self, kube: KubeClient, name: str, path: str, *, selector: str = "") -> list[Object]:
        """Add the first objects of a kind, and return them."""
        params = {"limit": str(MAX_OBJECTS), **({"labelSelector": selector} if selector else {})}
        try:
            found = await kube.get(path, **params)
        except ApiError as error:
            self.missing.append(f"{name}: {error}")
            return []
        if found["metadata"].get("continue"):
            self.missing.append(f"{name}: the list has only the first {MAX_OBJECTS}")
        items: list[Object] = [_redact(item) for item in found["items"]]
        self.files[f"{name}.json"] = json.dumps(items, indent=1, ensure_ascii=False)
        return items

    async def _add_executions(self, kube: KubeClient, path: str) -> None:
        """Add name, phase, reason and the like of executions. Code, context and output are not transferred."""
        try:
            page = await kube.get_table(path, limit=MAX_OBJECTS)
        except ApiError as error:
            self.missing.append(f"namespace/{EXECUTIONS}: {error}")
            return
        rows = [
            {"name": row.metadata["name"]} | {name: row.cells[name] for name in row.cells.keys() - _OF_CALLERS}
            for row in page.rows
        ]
        self.files[f"namespace/{EXECUTIONS}.json"] = json.dumps(rows, indent=1, ensure_ascii=False, sort_keys=True)

    async def _add_logs(self, kube: KubeClient, pods: list[Object]) -> None:
        for pod, container, previous in _list_logs(pods):
            name = f"release/logs/{pod['metadata']['name']}.{container}{'.previous' if previous else ''}.log"
            path = resource_path("pods", namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"])
            params = {"container": container, "tailLines": str(MAX_LOG_LINES), "limitBytes": str(_MAX_LOG_BYTES)}
            try:
                text = await kube.read_text(f"{path}/log", **params, **({"previous": "true"} if previous else {}))
            except ApiError as error:
                self.missing.append(f"{name}: {error}")
            else:
                self.files[name] = text


def _list_logs(pods: list[Object]) -> Iterator[tuple[Object, str, bool]]:
    """Yield pod and container of each log, and whether it is that of the container before the last restart."""
    for pod in pods:
        for status in (pod.get("status") or {}).get("containerStatuses") or []:
            yield pod, str(status["name"]), False
            if status.get("restartCount"):
                yield pod, str(status["name"]), True


def _redact(item: Object) -> Object:
    """Return an object without what may be a credential, and without what only the API server needs."""
    metadata = {name: value for name, value in item["metadata"].items() if name != "managedFields"}
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != _APPLIED}
    return {name: metadata if name == "metadata" else _redact_values(value) for name, value in item.items()}


def _redact_values(value: object) -> object:
    """Return data without the values of variables and headers, which are objects with `name` and `value`."""
    if isinstance(value, list):
        return [_redact_values(each) for each in value]
    if not isinstance(value, dict):
        return value
    keeps = "name" not in value or "value" not in value or str(value["name"]).startswith(_OWN_VARIABLE)
    return {name: _REMOVED if name == "value" and not keeps else _redact_values(each) for name, each in value.items()}
