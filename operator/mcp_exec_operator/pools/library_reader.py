"""Asks a pod for the libraries of its image, once for each template and image."""

import logging
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.constants import SANDBOX_CONTAINER
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.kube.write_priority import WritePriority
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pools.pool import Pool

log = logging.getLogger(__name__)

_READ_SECONDS: Final = 20.0
_AGAIN_SECONDS: Final = 60.0
"""Shortest time between two reads of a pool, whose pods may have different images under one tag."""
_LAST_RETRY_SECONDS: Final = 3600.0
"""Supervisors of earlier releases never answer."""


@dataclass(kw_only=True, eq=False)
class _Image:
    """The image of a pool's pods that was asked for last."""

    key: tuple[str, str] = ("", "")
    """Hash of the template and id of the image."""
    reading: bool = False
    next_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first=_AGAIN_SECONDS, last=_LAST_RETRY_SECONDS))

    def find_due(self, key: tuple[str, str], now: float) -> float:
        """Return the time from which pods with this image may be asked."""
        return now if key[0] != self.key[0] else max(self.next_at, self.backoff.until)


@dataclass(kw_only=True, eq=False)
class LibraryReader:
    """Reads the libraries of one pool, once for each image."""

    pool: Pool
    supervisors: SupervisorClient
    tasks: TaskRegistry
    write_priority: WritePriority
    _image: _Image = field(default_factory=_Image)

    def read_missing(self, now: float) -> float | None:
        """Start to read what is not known of the pods. Return the time from which more may be read, or None."""
        pod = _choose_pod(self.pool)
        if pod is None:
            return None
        image, key = self._image, (pod.template, _read_image_id(pod))
        if image.reading or (key == image.key and self.pool.libraries.knows(pod.template)):
            return None
        if (due := image.find_due(key, now)) > now:
            return due
        image.key, image.reading, image.next_at = key, True, now + _AGAIN_SECONDS
        self.tasks.spawn(self._read(pod, image), name=f"libraries of {pod.name}")
        return None

    async def _read(self, pod: Pod, image: _Image) -> None:
        connection = self.supervisors.get_connection(namespace=self.pool.namespace, pod=pod.name, address=pod.address)
        try:
            # an answer takes the pod's CPU for a moment: executions come first
            await self.write_priority.wait_until_idle()
            libraries = await connection.get_libraries(timeout_seconds=_READ_SECONDS)
        except SandboxError as error:
            image.backoff.fail(monotonic())
            log.info("the libraries of pod %s were not read: %s", pod.name, error, extra={"pool": self.pool.name})
        else:
            image.backoff.succeed()
            self.pool.libraries.set(libraries, template=pod.template)
        finally:
            image.reading = False
            self.pool.wakeup.set()


def _choose_pod(pool: Pool) -> Pod | None:
    """Return a pod of the present template that can be asked: an idle one, else one that runs code."""
    for state in (PodState.WARM, PodState.OWNED, PodState.BUSY):
        for pod in pool.pods.all(state):
            if pod.template == pool.template_hash and pod.address and pod.verified and not pod.lost:
                return pod
    return None


def _read_image_id(pod: Pod) -> str:
    """Return the id of the image that the pod runs, which changes with a tag's image. Empty if it is unknown."""
    statuses = ((pod.newest or {}).get("status") or {}).get("containerStatuses") or []
    return next((str(each.get("imageID") or "") for each in statuses if each.get("name") == SANDBOX_CONTAINER), "")
