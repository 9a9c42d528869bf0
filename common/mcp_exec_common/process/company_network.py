"""The company's network as a process has it now: authorities and proxies, in mounted folders that may change."""

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.process.outgoing import Proxies, build_client_tls, read_proxy_folder
from mcp_exec_common.util.signals import Signal

log = logging.getLogger(__name__)


class CompanyNetwork:
    """Authorities and proxies of connections to other hosts. New connections use the present ones, open ones go on."""

    def __init__(
        self,
        *,
        bundle: Path | None = None,
        proxy_folder: Path | None = None,
        proxies: Mapping[str, str] | None = None,
        direct: Iterable[str] = (),
    ) -> None:
        """Read the file with the bundle and the folder with the proxies' URLs, which replace `proxies` by scheme.

        `direct` is what is reached without a proxy, as `Proxies.build` takes it. Raises OSError, and ValueError if
        one of them is unusable.
        """
        self.bundles: tuple[str, ...] = ()
        """Texts of the bundles that are trusted in addition to the system's authorities: one, or none."""
        self.tls: ssl.SSLContext = build_client_tls()
        """Context of connections to hosts without a bundle of their own. It is replaced, and never changed."""
        self.changed: Signal[[]] = Signal()
        """Sent when authorities or proxies are other ones."""
        self._direct: Final = tuple(direct)
        self.proxies = Proxies.build(proxies or {}, self._direct)
        self._folders: Final = []
        if bundle is not None:
            self._entry = bundle.name
            self._folders.append((MountedFolder(path=bundle.parent, only=bundle.name), self._use_bundle))
        if proxy_folder is not None:
            self._folders.append((MountedFolder(path=proxy_folder), self._use_proxies))
        for folder, use in self._folders:
            use(folder.read())

    async def follow(self) -> None:
        """Use what the folders have, for ever. What is unusable is logged, and the last content stays in use."""
        async with asyncio.TaskGroup() as group:
            for folder, use in self._folders:
                group.create_task(folder.follow(use), name=f"changes of {folder.path}")

    def _use_bundle(self, entries: Mapping[str, bytes]) -> None:
        if self._entry not in entries:
            raise ValueError(f"there is no entry {self._entry}")
        bundles = (entries[self._entry].decode("utf-8", "replace"),)
        if bundles == self.bundles:
            return
        try:
            self.tls, self.bundles = build_client_tls(*bundles), bundles
        except ValueError as error:
            raise ValueError(f"{self._entry} {error}") from error
        self._report("authorities")

    def _use_proxies(self, entries: Mapping[str, bytes]) -> None:
        proxies = Proxies.build(read_proxy_folder(entries), self._direct)
        if proxies != self.proxies:
            self.proxies = proxies
            self._report("proxies")

    def _report(self, what: str) -> None:
        log.info("new connections use the present %s", what)
        self.changed.emit()
