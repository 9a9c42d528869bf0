"""Secrets with keys of the release, which the operator creates: the sandbox key, and the first API key of the gateway.

What is absent is created, and what exists is kept. If two operators create a Secret at once, both use the one that the
API server accepted. The Secret with the text of the first API key is created last: until then, each attempt makes a new
key.
"""

import asyncio
import base64
import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Final

from mcp_exec_api.constants import GROUP, LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY
from mcp_exec_api.meta import now
from mcp_exec_common.api_keys import KeyEntry, digest_key, generate_key
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.preflight import CannotStart
from mcp_exec_operator.settings import InitialApiKey, Settings

log = logging.getLogger(__name__)

ANNOTATION_EXPIRES_AT: Final = f"{GROUP}/expires-at"
INITIAL_KEY: Final = "initial"
"""Name of the first API key: its entry in the Secret with the API keys, which belongs to the operator."""
_KEY_ENTRY: Final = "key"
_TEXT_ENTRY: Final = "api-key"
_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class ReleaseKeys:
    """The Secrets with the release's keys, in its namespace."""

    settings: Settings
    kube: KubeClient
    metrics: Metrics
    clock: Callable[[], datetime] = now
    check_seconds: float = 20.0
    """Seconds until what is deleted is restored."""

    async def obtain_sandbox_key(self) -> bytes:
        """Return the sandbox key: that of the Secret, or a new one if the operator creates it and there is none.

        Raises CannotStart if there is none after `api_wait_seconds`.
        """
        deadline = monotonic() + self.settings.api_wait_seconds
        while True:
            try:
                return await self._read_or_create_sandbox_key()
            except (ApiError, ValueError) as error:
                if monotonic() >= deadline:
                    raise CannotStart(f"the sandbox key can't be read: {error}") from error
                log.warning("the sandbox key can't be read yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def run(self, sandbox_key: bytes) -> None:
        """Restore what is deleted, for ever."""
        while True:
            await asyncio.sleep(self.check_seconds)
            await self.restore(sandbox_key)

    async def restore(self, sandbox_key: bytes) -> None:
        """Create the Secrets that are absent. That of the sandbox key gets the key that is in use.

        An error is logged, since executions need no API key.
        """
        try:
            if self.settings.create_sandbox_key:
                await self._restore_sandbox_key(sandbox_key)
            if self.settings.api_keys_secret:
                await self._restore_api_keys()
        except (ApiError, ValueError) as error:
            log.error("Secrets with the release's keys can't be created or read: %s", error)

    async def _read_or_create_sandbox_key(self) -> bytes:
        name = self.settings.sandbox_key_secret
        secret = await self.kube.find(self._path(name))
        if secret is None and self.settings.create_sandbox_key:
            secret = await self._create_owned(name, {_KEY_ENTRY: secrets.token_urlsafe(48).encode()})
        if secret is None:
            raise ValueError(f"Secret {name} does not exist in namespace {self.settings.release_namespace}")
        return _read(secret, _KEY_ENTRY)

    async def _restore_sandbox_key(self, key: bytes) -> None:
        name = self.settings.sandbox_key_secret
        secret = await self.kube.find(self._path(name))
        if secret is None:
            secret = await self._create_owned(name, {_KEY_ENTRY: key})
        if _read(secret, _KEY_ENTRY) != key:
            log.error("Secret %s has another key than the one in use: restart operator, gateway and broker", name)

    async def _restore_api_keys(self) -> None:
        names, initial = self.settings, self.settings.initial_api_key
        text = await self.kube.find(self._path(names.initial_api_key_secret))
        if initial is not None and text is None:
            await self._create_initial_key(initial)
            return
        if await self.kube.find(self._path(names.api_keys_secret)) is None:
            entries = {} if initial is None or text is None else {INITIAL_KEY: _build_entry(text, initial)}
            await self._create(_build_secret(names.api_keys_secret, entries))
        if initial is None and text is not None:
            await self._patch_api_keys(None)
            self._count()
            await self.kube.delete(self._path(names.initial_api_key_secret), uid=text["metadata"]["uid"])
            log.warning("the API key %s is revoked, since the settings have none", INITIAL_KEY)

    async def _create_initial_key(self, initial: InitialApiKey) -> None:
        annotations = {}
        if initial.valid_days:
            expires_at = self.clock().replace(microsecond=0) + timedelta(days=initial.valid_days)
            annotations[ANNOTATION_EXPIRES_AT] = expires_at.isoformat().replace("+00:00", "Z")
        made = _build_secret(self.settings.initial_api_key_secret, {_TEXT_ENTRY: generate_key().encode()}, annotations)
        await self._store_entry(_build_entry(made, initial))
        stored = await self._create(made, owner=await self._read_owner())
        if stored["data"] != made["data"]:
            await self._store_entry(_build_entry(stored, initial))

    async def _store_entry(self, entry: bytes) -> None:
        made = _build_secret(self.settings.api_keys_secret, {INITIAL_KEY: entry})
        stored = await self._create(made)
        if (stored.get("data") or {}).get(INITIAL_KEY) != made["data"][INITIAL_KEY]:
            await self._patch_api_keys(made["data"][INITIAL_KEY])

    async def _patch_api_keys(self, encoded: str | None) -> None:
        self._count()
        await self.kube.patch(self._path(self.settings.api_keys_secret), {"data": {INITIAL_KEY: encoded}})

    async def _create_owned(self, name: str, entries: dict[str, bytes]) -> Object:
        return await self._create(_build_secret(name, entries), owner=await self._read_owner())

    async def _create(self, secret: Object, *, owner: Object | None = None) -> Object:
        """Create a Secret and return it. If there is one of its name, return that one."""
        name = secret["metadata"]["name"]
        if owner is not None:
            secret = {**secret, "metadata": {**secret["metadata"], "ownerReferences": [owner]}}
        self._count()
        try:
            created = await self.kube.create(self._path(), secret)
        except ApiError as error:
            if error.code != 409:
                raise
            return await self.kube.get(self._path(name))
        log.info("Secret %s is created", name)
        return created

    async def _read_owner(self) -> Object:
        """Return the reference to the operator's ServiceAccount: what it owns is deleted with the release."""
        name = self.settings.service_account
        path = resource_path("serviceaccounts", namespace=self.settings.release_namespace, name=name)
        return {
            "apiVersion": "v1", "kind": "ServiceAccount", "name": name,
            "uid": (await self.kube.get(path))["metadata"]["uid"],
        }  # fmt: skip

    def _path(self, name: str | None = None) -> str:
        return resource_path("secrets", namespace=self.settings.release_namespace, name=name)

    def _count(self) -> None:
        self.metrics.writes.labels("release-key").inc()


def _build_secret(name: str, entries: dict[str, bytes], annotations: dict[str, str] | None = None) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            # no ToolServer gets a Secret with this name
            "labels": {LABEL_NAME: MANAGED_BY, LABEL_MANAGED_BY: MANAGED_BY},
            "annotations": annotations or {},
        },
        "type": "Opaque",
        "data": {entry: base64.b64encode(content).decode() for entry, content in entries.items()},
    }


def _build_entry(secret: Object, initial: InitialApiKey) -> bytes:
    """Return the entry of the first API key, from the Secret with its text. Raises ValueError if that is malformed."""
    expires_at = (secret["metadata"].get("annotations") or {}).get(ANNOTATION_EXPIRES_AT)
    entry = KeyEntry(
        sha256=digest_key(_read(secret, _TEXT_ENTRY).decode()),
        namespace=initial.namespace,
        limits=initial.limits,
        approver=initial.approver,
        expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
    )
    return json.dumps(entry.to_api(), separators=(",", ":")).encode()


def _read(secret: Object, entry: str) -> bytes:
    """Return an entry of a Secret. Raises ValueError if it is absent or empty."""
    if content := base64.b64decode((secret.get("data") or {}).get(entry, "")).strip():
        return content
    raise ValueError(f"Secret {secret['metadata']['name']} has no entry `{entry}`, or an empty one")
