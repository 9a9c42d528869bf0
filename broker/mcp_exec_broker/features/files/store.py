"""The store of files: all of its parts, built from settings."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from obstore.store import S3Store
from prometheus_client import CollectorRegistry
from yarl import URL

from mcp_exec_broker.features.files.artifacts import ArtifactStore
from mcp_exec_broker.features.files.collector import Collector
from mcp_exec_broker.features.files.metrics import FilesMetrics
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.storage import ObstoreStorage, Storage, VolumeStorage
from mcp_exec_broker.features.files.usage import OwnerUsage, StoreLimits
from mcp_exec_broker.features.files.workspace.commit import PendingUploads
from mcp_exec_broker.features.files.workspace.states import WorkspaceStates
from mcp_exec_broker.features.files.workspace.versions import Versions
from mcp_exec_broker.features.files.workspace.workspaces import WorkspaceStore
from mcp_exec_broker.settings import Settings
from mcp_exec_common.process.company_network import CompanyNetwork
from mcp_exec_common.process.outgoing import find_certificates

if TYPE_CHECKING:
    from obstore.store import S3Config

log = logging.getLogger(__name__)

COLLECT_SECONDS: Final = 600.0
"""Seconds between two looks of the collector."""


def open_bucket(settings: Settings, network: CompanyNetwork) -> Storage:
    """Return the store in a bucket. A changed Secret with its credentials needs a restart."""
    storage = ObstoreStorage(_connect(settings, network))
    network.changed.connect(lambda: storage.use(_connect(settings, network)))
    return storage


def _connect(settings: Settings, network: CompanyNetwork) -> S3Store:
    endpoint, credentials = settings.files_endpoint, settings.files_credentials
    config: S3Config = {"region": settings.files_region or "us-east-1", "virtual_hosted_style_request": not endpoint}
    if endpoint:
        config["endpoint"] = endpoint
    if credentials is not None:
        config["access_key_id"] = (credentials / "accessKeyId").read_text().strip()
        config["secret_access_key"] = (credentials / "secretAccessKey").read_text().strip()
    bundle = "\n".join(each for text in network.bundles for each in find_certificates(text))
    host = URL(endpoint or f"https://{settings.files_bucket}.s3.{config['region']}.amazonaws.com")
    proxy = network.proxies.find(host.scheme, host.host or "")
    return S3Store(
        settings.files_bucket,
        prefix=settings.files_prefix or None,
        config=config,
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=5),
            "read_timeout": timedelta(seconds=30),
            "timeout": timedelta(seconds=900),
            **({"root_certificate": bundle} if bundle else {}),
            **({"proxy_url": proxy} if proxy else {}),
        },
        retry_config={
            "max_retries": 3,
            "retry_timeout": timedelta(seconds=20),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
        },
    )


@dataclass(frozen=True, kw_only=True)
class FilesStore:
    """The parts of the store that the ports use."""

    limits: StoreLimits
    storage: Storage
    states: WorkspaceStates
    versions: Versions
    workspaces: WorkspaceStore
    artifacts: ArtifactStore
    usage: OwnerUsage
    pending: PendingUploads
    collector: Collector
    metrics: FilesMetrics

    @classmethod
    def build(
        cls,
        storage: Storage,
        limits: StoreLimits,
        *,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Self:
        """Build the parts. `clock` returns seconds, `now` the time."""
        metrics = FilesMetrics(registry)
        states = WorkspaceStates(storage=storage, limits=limits, now=now)
        versions = Versions(storage=storage)
        pending = PendingUploads(most=limits.workspace_files, clock=clock)
        usage = OwnerUsage(storage=storage, limits=limits, clock=clock)
        artifacts = ArtifactStore(storage=storage, limits=limits, usage=usage, now=now)
        workspaces = WorkspaceStore(
            storage=storage,
            limits=limits,
            states=states,
            versions=versions,
            usage=usage,
            pending=pending,
            metrics=metrics,
            now=now,
        )
        collector = Collector(
            storage=storage,
            limits=limits,
            states=states,
            versions=versions,
            artifacts=artifacts,
            usage=usage,
            metrics=metrics,
            clock=clock,
            now=now,
        )
        return cls(
            limits=limits,
            storage=storage,
            states=states,
            versions=versions,
            workspaces=workspaces,
            artifacts=artifacts,
            usage=usage,
            pending=pending,
            collector=collector,
            metrics=metrics,
        )

    async def collect_forever(self, seconds: float = COLLECT_SECONDS) -> None:
        """Run the collector now and then. An unavailable store is logged where it failed."""
        while True:
            try:
                removed = await self.collector.run()
                if removed:
                    log.info("unused files were removed", extra={"objects": removed})
            except FilesRefused as error:
                log.warning("unused files could not be removed: %s", error)
            await asyncio.sleep(seconds)


def open_store(
    settings: Settings, *, network: CompanyNetwork, registry: CollectorRegistry | None = None
) -> FilesStore | None:
    """Return the store that the settings describe, or None if there is none."""
    if settings.files_folder is not None:
        storage: Storage = VolumeStorage(settings.files_folder)
    elif settings.files_bucket:
        storage = open_bucket(settings, network)
    else:
        return None
    limits = StoreLimits(
        workspace_bytes=settings.files_workspace_bytes,
        workspace_files=settings.files_workspace_files,
        file_bytes=settings.files_file_bytes,
        owner_workspaces=settings.files_owner_workspaces,
        owner_bytes=settings.files_owner_bytes,
        namespace_bytes=settings.files_namespace_bytes,
        workspace_ttl_seconds=settings.files_workspace_ttl_seconds,
        artifact_bytes=settings.files_artifact_bytes,
        artifact_ttl_seconds=settings.files_artifact_ttl_seconds,
    )
    return FilesStore.build(storage, limits, registry=registry)
