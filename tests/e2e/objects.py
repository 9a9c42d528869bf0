"""Objects of a cluster, read and written by Kubernetes' official client, as users' programs see them."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kubernetes import config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient, Resource
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, ResourceNotFoundError

from tests.support.until import eventually

Object = dict[str, Any]

JSON_PATCH: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
VERSIONS: Final = {
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "CodeExecution": "mcp-exec.dev/v1beta1",
    "ConfigMap": "v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "Deployment": "apps/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "ExecutionRollout": "mcp-exec.dev/v1beta1",
    "Job": "batch/v1",
    "LimitRange": "v1",
    "Lease": "coordination.k8s.io/v1",
    "Namespace": "v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Node": "v1",
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
    "Pod": "v1",
    "ResourceQuota": "v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "RuntimeClass": "node.k8s.io/v1",
    "SandboxPool": "mcp-exec.dev/v1beta1",
    "SandboxSession": "mcp-exec.dev/v1beta1",
    "Secret": "v1",
    "Service": "v1",
    "ServiceAccount": "v1",
    "StorageClass": "storage.k8s.io/v1",
    "ToolServer": "mcp-exec.dev/v1beta1",
    "Skill": "mcp-exec.dev/v1beta1",
}
"""The API version that tests use of each kind."""
OLDER_VERSIONS: Final = {"EndpointSlice": "discovery.k8s.io/v1beta1"}
"""The version of a kind in Kubernetes 1.20, which lacks the one above."""


class Objects:
    """The API of a cluster. Objects are dictionaries like in manifests."""

    def __init__(self, kubeconfig: Path, *, user: str | None = None, group: str | None = None) -> None:
        """Write as a user of a group, whom the kubeconfig's user may impersonate, or as that user itself."""
        # The client's own cache of discovered kinds is a file for each address: another cluster's there is stale.
        self._folder = TemporaryDirectory(prefix="mcp-exec-discovery-")
        self.api = config.new_client_from_config(config_file=str(kubeconfig))
        for header, value in (("Impersonate-User", user), ("Impersonate-Group", group)):
            if value:
                self.api.set_default_header(header, value)
        self._client = DynamicClient(self.api, cache_file=str(Path(self._folder.name) / "kinds"))

    def close(self) -> None:
        """Close the connections."""
        self.api.close()
        self._folder.cleanup()

    def get(self, kind: str, name: str, *, namespace: str | None) -> Object:
        """Return an object; raise NotFoundError if there is none."""
        found: Object = self._resource(kind).get(name=name, namespace=namespace).to_dict()
        return found

    def find(self, kind: str, name: str, *, namespace: str | None) -> Object | None:
        """Return an object, or None."""
        try:
            return self.get(kind, name, namespace=namespace)
        except NotFoundError:
            return None

    def select(self, kind: str, *, namespace: str | None, labels: str | None = None) -> list[Object]:
        """Return all objects of a kind that have the labels."""
        found = self._resource(kind).get(namespace=namespace, label_selector=labels).to_dict()
        return list(found["items"])

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object and return it; raise ApiException if the API server refuses it.

        It is created again while the API server asks for that: a pod in a new namespace before its account's token.
        """
        resource = self._resource(manifest["kind"], manifest["apiVersion"])
        options = {"dry_run": "All"} if dry_run else {}

        def attempt() -> Object | None:
            try:
                return dict(resource.create(body=manifest, namespace=namespace_of(manifest), **options).to_dict())
            except ApiException as error:
                if '"reason":"ServerTimeout"' not in str(error.body):
                    raise
                return None

        return eventually(attempt, what=f"{manifest['kind']} {manifest['metadata']['name']} is created") or {}

    def create_namespace(self, name: str) -> None:
        """Create a namespace unless it exists, and wait for its service account: pods are refused until it exists."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        eventually(lambda: self.find("ServiceAccount", "default", namespace=name), what=f"a service account in {name}")

    def refusal(self, manifest: Object) -> str:
        """Return the message of the API server that refuses a manifest."""
        try:
            created = self.create(manifest)
        except ApiException as error:
            return str(json.loads(error.body)["message"])
        raise AssertionError(f"the API server accepted {created}")

    def apply(self, manifest: Object) -> Object:
        """Create an object, or merge the manifest into the one that exists.

        Not server-side apply: Kubernetes 1.20 parses its JSON as YAML, which refuses escaped surrogates, and demands
        defaults in lists such as a Service's ports.
        """
        try:
            return self.create(manifest)
        except ConflictError:
            name, namespace = manifest["metadata"]["name"], namespace_of(manifest)
            return self.patch(manifest["kind"], name, manifest, namespace=namespace, way=MERGE)

    def validate(self, manifest: Object) -> None:
        """Apply a manifest without effect, on the server's side, which refuses fields that a creation would drop."""
        self._client.server_side_apply(
            self._resource(manifest["kind"], manifest["apiVersion"]), body=manifest, namespace=namespace_of(manifest),
            field_manager="mcp-exec-tests", force_conflicts=True, dry_run="All",
        )  # fmt: skip

    def patch(
        self, kind: str, name: str, patch: Mapping[str, Any] | list[Object], *, namespace: str | None, way: str
    ) -> Object:
        """Patch an object in one of the API server's ways, named by its content type."""
        resource = self._resource(kind)
        patched: Object = resource.patch(body=patch, name=name, namespace=namespace, content_type=way).to_dict()
        return patched

    def delete(
        self, kind: str, *names: str, namespace: str | None, wait: bool = True, seconds: float = 120,
        grace_seconds: int | None = None,
    ) -> None:  # fmt: skip
        """Delete objects that may exist, and wait until they are gone."""
        resource = self._resource(kind)
        body = None if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        for name in names:
            try:
                resource.delete(name=name, namespace=namespace, body=body)
            except NotFoundError:
                continue
        for name in names if wait else ():
            eventually(
                lambda name=name: self.find(kind, name, namespace=namespace) is None,  # type: ignore[misc]
                seconds=seconds, what=f"{kind} {name} is gone",
            )  # fmt: skip

    def wait_for(self, condition: str, kind: str, *names: str, namespace: str | None, seconds: float) -> None:
        """Wait until a condition of objects is True."""
        for name in names:

            def missing(name: str = name) -> Object | None:
                status = (self.find(kind, name, namespace=namespace) or {}).get("status") or {}
                conditions = {each["type"]: each["status"] for each in status.get("conditions") or []}
                return None if conditions.get(condition) == "True" else status

            wait_until_none(missing, seconds=seconds, what=f"{kind} {name} is {condition}")

    def _resource(self, kind: str, version: str | None = None) -> Resource:
        try:
            return self._client.resources.get(api_version=version or VERSIONS[kind], kind=kind)
        except ResourceNotFoundError:
            if kind not in OLDER_VERSIONS:
                raise
            return self._client.resources.get(api_version=OLDER_VERSIONS[kind], kind=kind)


def wait_until_none(missing: Any, *, seconds: float, what: str) -> None:
    """Wait until nothing is missing; raise AssertionError with what is."""
    last: list[Any] = [None]

    def holds() -> bool:
        last[0] = missing()
        return last[0] is None

    try:
        eventually(holds, seconds=seconds, every=0.2, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}: {last[0]}") from None


def namespace_of(manifest: Object) -> str | None:
    """Return the namespace that a manifest names."""
    namespace: str | None = manifest["metadata"].get("namespace")
    return namespace
