"""The Secret with the API keys of a gateway, at the API server."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_common.api_keys import KeyEntry
from mcp_exec_common.kube.client import KubeClient, resource_path


@dataclass(frozen=True, kw_only=True)
class KeySecret:
    """The Secret as it was read. A write fails if another one came between."""

    kube: KubeClient
    path: str
    version: str
    data: Mapping[str, str]
    """Entries in Base64, by the names of their keys."""

    @classmethod
    async def read(cls, kube: KubeClient, *, namespace: str, name: str) -> Self:
        """Read the Secret. Raises ApiError."""
        path = resource_path("secrets", namespace=namespace, name=name)
        item = await kube.get(path)
        return cls(kube=kube, path=path, version=item["metadata"]["resourceVersion"], data=item.get("data") or {})

    def parse(self, name: str) -> KeyEntry:
        """Return the entry of a key. Raises CommandError if there is none, or no valid one."""
        if name not in self.data:
            raise CommandError(f"there is no key {name} in the Secret", ExitCode.REFUSED)
        try:
            return KeyEntry.parse(self.data[name])
        except ValueError as error:
            raise CommandError(f"the key {name} is not valid: {error}", ExitCode.REFUSED) from None

    async def write(self, entries: Mapping[str, KeyEntry | None]) -> None:
        """Write these entries, and remove those that are None. All others stay. Raises ApiError."""
        texts = {name: json.dumps(entry.to_api(), separators=(",", ":")) for name, entry in entries.items() if entry}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        removed = {name: None for name, entry in entries.items() if entry is None}
        await self.kube.patch(self.path, {"metadata": {"resourceVersion": self.version}, "data": data | removed})
