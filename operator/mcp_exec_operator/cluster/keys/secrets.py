"""Secrets of the release's namespace that the operator creates and changes."""

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReleaseSecrets:
    """Access to the Secrets with the release's keys. All methods raise ApiError."""

    kube: KubeClient
    namespace: str
    """The release's namespace."""
    service_account: str
    """The operator's ServiceAccount. What it owns is deleted with the release."""
    metrics: Metrics

    async def find(self, name: str) -> Object | None:
        """Return a Secret, or None if it does not exist."""
        return await self.kube.find(self._path(name))

    async def create(self, secret: Object, *, owned: bool = False) -> Object:
        """Create a Secret and return it. If there is one of its name, return that one.

        An `owned` one belongs to the operator's ServiceAccount.
        """
        name = secret["metadata"]["name"]
        if owned:
            secret = {**secret, "metadata": {**secret["metadata"], "ownerReferences": [await self._read_owner()]}}
        self._count()
        try:
            created = await self.kube.create(self._path(), secret)
        except ApiError as error:
            if error.code != 409:
                raise
            return await self.kube.get(self._path(name))
        log.info("Secret %s is created", name)
        return created

    async def patch(self, name: str, patch: Object) -> Object:
        """Merge fields into a Secret and return it."""
        self._count()
        return await self.kube.patch(self._path(name), patch)

    async def delete(self, secret: Object) -> None:
        """Delete this Secret, and not another one of its name."""
        metadata = secret["metadata"]
        await self.kube.delete(self._path(metadata["name"]), uid=metadata["uid"])

    async def _read_owner(self) -> Object:
        path = resource_path("serviceaccounts", namespace=self.namespace, name=self.service_account)
        uid = (await self.kube.get(path))["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "ServiceAccount", "name": self.service_account, "uid": uid}

    def _path(self, name: str | None = None) -> str:
        return resource_path("secrets", namespace=self.namespace, name=name)

    def _count(self) -> None:
        self.metrics.writes.labels("release-key").inc()


def build_secret(name: str, entries: Mapping[str, bytes], annotations: Mapping[str, str] | None = None) -> Object:
    """Return the manifest of a Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            # no ToolServer gets a Secret with this name
            "labels": {LABEL_NAME: MANAGED_BY, LABEL_MANAGED_BY: MANAGED_BY},
            "annotations": dict(annotations or {}),
        },
        "type": "Opaque",
        "data": {entry: encode(content) for entry, content in entries.items()},
    }


def encode(content: bytes) -> str:
    """Return an entry's content as Secrets have it."""
    return base64.b64encode(content).decode()


def decode_entries(secret: Object) -> dict[str, bytes]:
    """Return the entries of a Secret. Raises ValueError if one is no base64."""
    return {entry: base64.b64decode(content or "") for entry, content in (secret.get("data") or {}).items()}


def read_entry(secret: Object, entry: str) -> bytes:
    """Return an entry of a Secret. Raises ValueError if it is absent or empty."""
    if content := decode_entries(secret).get(entry, b"").strip():
        return content
    raise ValueError(f"Secret {secret['metadata']['name']} has no entry `{entry}`, or an empty one")
