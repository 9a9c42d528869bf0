"""Requests to the supervisors of a pool's pods: readiness, cleaning after an execution, libraries of the image."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.constants import DEFAULT_LANGUAGE, SANDBOX_CONTAINER
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.supervisor.client import SupervisorConnection
from mcp_exec_common.supervisor.protocol import ProtocolMismatch, SandboxError, SandboxNotProven
from mcp_exec_common.util.backoff import Backoff, delays
from mcp_exec_operator.core.pods.pod import Pod, PodState
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.services import PodRemover, PoolServices

log = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.02
_LAST_DELAY: Final = 0.5
_MAX_PROBES: Final = 32
"""Concurrent probes of a pool. A new leader may find thousands of pods and must renew its lease meanwhile."""
_RECYCLE_SECONDS: Final = 10.0
"""How long a sandbox may take to be clean. One that takes longer is deleted."""
_READ_SECONDS: Final = 20.0
_AGAIN_SECONDS: Final = 60.0
"""Shortest time between two reads of a pool, whose pods may have different images under one tag."""
_LAST_RETRY_SECONDS: Final = 3600.0
"""Longest time between two reads of a pool whose supervisors do not answer."""


class SandboxNotIdle(Exception):
    """The sandbox has accepted an execution."""


@dataclass(kw_only=True, eq=False)
class ReadinessProber:
    """Probes the pods of one pool."""

    pool: Pool
    services: PoolServices
    remover: PodRemover
    recycler: "Recycler"
    _probed: set[str] = field(default_factory=set)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_PROBES))

    def probe(self, pod: Pod) -> None:
        """Start to probe a starting pod that has an address, unless that goes on already."""
        if pod.name not in self._probed:
            self._probed.add(pod.name)
            self.services.tasks.spawn(self._probe(pod), name=f"probe {pod.name}")

    def recover_left(self) -> None:
        """Start to clean the pods that an earlier operator left for their owners."""
        for pod in self.pool.pods.pop_left():
            self.services.tasks.spawn(self._recover(pod), name=f"recover {pod.name}")

    async def _recover(self, pod: Pod) -> None:
        async with self._slots:
            await self.recycler.recover(pod)

    async def _probe(self, pod: Pod) -> None:
        supervisor = self.services.connect(self.pool, pod)
        first = not pod.start.ready_at
        try:
            protocol = await wait_until_idle(
                supervisor,
                wanted=lambda: pod.state is PodState.STARTING and not pod.lost,
                slots=self._slots,
                timeout_seconds=self.pool.times.start_timeout,
                check_uses=not pod.start.created_here,
            )
        except SandboxNotIdle as error:
            fields = {"pool": self.pool.name, "pod": pod.name}
            log.warning("pod %s is in use, but not bound to an execution: %s", pod.name, error, extra=fields)
            self.remover.retire(pod)
        except SandboxNotProven as error:
            self.remover.fail(pod, PodProblem(reason=Reason.POD_FAILED, message=f"pod {pod.name}: {error}"))
        except ProtocolMismatch as error:
            self.remover.fail(pod, PodProblem(reason=Reason.PROTOCOL_MISMATCH, message=f"pod {pod.name}: {error}"))
        else:
            if protocol is not None and self.pool.mark_ready(pod.name, protocol=protocol) is not None:
                if first:
                    start = self.services.metrics.pod_starts.labels(self.pool.namespace, self.pool.name)
                    start.observe(pod.start.ready_at - pod.start.since)
                if pod.state is PodState.WARM:
                    self.services.idle.emit(self.pool, pod)
        finally:
            self._probed.discard(pod.name)
            self.pool.pods.touch(pod)  # one that is not warm now is probed again


async def wait_until_idle(
    supervisor: SupervisorConnection,
    *,
    wanted: Callable[[], bool],
    slots: asyncio.Semaphore,
    timeout_seconds: float,
    check_uses: bool = False,
) -> int | None:
    """Return the version of the protocol once the sandbox is idle.

    None if it is not wanted any more, or after the timeout.

    With `check_uses`, a sandbox that was cleaned after an execution is not idle: whose it was is unknown. Raises
    SandboxNotIdle if it runs or ran an execution, SandboxNotProven if something else is at its address, and
    ProtocolMismatch if it speaks no version of this release.
    """
    deadline = monotonic() + timeout_seconds
    for delay in delays(first=_FIRST_DELAY, last=_LAST_DELAY, factor=1.5):
        if not wanted() or monotonic() >= deadline:
            break
        try:
            async with slots:
                health = await supervisor.get_health()
                uses = (await supervisor.get_use()).uses if check_uses else 0
        except (SandboxNotProven, ProtocolMismatch):
            raise
        except SandboxError:
            await asyncio.sleep(delay)
        else:
            if health.state != "idle" or uses:
                raise SandboxNotIdle(f"{health.state}, after {uses} executions" if uses else health.state)
            return health.protocol
    return None


@dataclass(kw_only=True, eq=False)
class Recycler:
    """Recycles the pods of one pool. A pod that cannot be cleaned is deleted."""

    pool: Pool
    services: PoolServices
    remover: PodRemover

    def recycle(self, pod: Pod, *, uid: str) -> None:
        """Start to clean a pod after its execution with this uid."""
        pod.use.recycling = True
        self.services.tasks.spawn(self._recycle(pod, uid), name=f"recycle {pod.name}")

    async def recover(self, pod: Pod) -> None:
        """Clean a pod that an earlier operator left for its owner, if it was used, and keep it."""
        try:
            await self._recover(pod)
        finally:
            pod.use.recycling = False

    async def _recover(self, pod: Pod) -> None:
        if self.pool.shape.reuse is None:
            self._end(pod)
            return
        try:
            use = await self.services.connect(self.pool, pod).get_use()
        except SandboxError as error:
            log.warning("pod %s was not recovered: %s", pod.name, error, extra={"pool": self.pool.name})
            self._end(pod)
            return
        pod.use.count_up_to(use.uses)
        if not pod.use.recycling:
            return  # an execution or a session was found that has it
        if use.id is not None:
            await self._clean(pod, use.id)
        elif use.state == "idle":
            self._keep(pod)
        else:
            self._end(pod)

    def _end(self, pod: Pod) -> None:
        """Delete a pod, unless an execution or a session was found that has it."""
        if pod.use.recycling:
            self._count("failed")
            self.remover.retire(pod)

    async def _recycle(self, pod: Pod, uid: str) -> None:
        try:
            await self._clean(pod, uid)
        finally:
            pod.use.recycling = False

    async def _clean(self, pod: Pod, uid: str) -> None:
        try:
            uses = await self.services.connect(self.pool, pod).recycle(uid, timeout_seconds=_RECYCLE_SECONDS)
        except SandboxError as error:
            log.warning("pod %s was not cleaned: %s", pod.name, error, extra={"pool": self.pool.name})
            self._end(pod)
            return
        pod.use.count_up_to(uses)
        pod.use.wrappers = None  # their files may be gone
        self._keep(pod)

    def _keep(self, pod: Pod) -> None:
        kept = self.pool.give_back(pod)
        self._count("kept" if kept else "ended")
        if not kept:
            self.remover.retire(pod)
        elif pod.state is PodState.OWNED:
            self.services.idle.emit(self.pool, pod)

    def _count(self, outcome: str) -> None:
        self.services.metrics.recycles.labels(self.pool.namespace, self.pool.name, outcome).inc()


@dataclass(kw_only=True, eq=False)
class _Image:
    """The image of a pool's pods that was asked for last."""

    template: str = ""
    """Hash of the template."""
    id: str = ""
    reading: bool = False
    next_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first=_AGAIN_SECONDS, last=_LAST_RETRY_SECONDS))

    def find_due(self, template: str, now: float) -> float:
        """Return when pods of a template may be asked."""
        return now if template != self.template else max(self.next_at, self.backoff.until)


@dataclass(kw_only=True, eq=False)
class LibraryReader:
    """Reads the libraries of one pool, once for each image."""

    pool: Pool
    services: PoolServices
    _image: _Image = field(default_factory=_Image)
    _missing: bool = False
    """Whether a pod was seen since the last choice that may have libraries which are not known."""

    def note(self, pod: Pod) -> None:
        """Take in a pod that can be asked. Only the default language has libraries that code can import."""
        has_libraries = self.pool.shape.language == DEFAULT_LANGUAGE
        self._missing = self._missing or (has_libraries and not self._knows(pod))

    def read_missing(self, now: float) -> float | None:
        """Start to read what is not known of the pods. Return when more may be read, or None."""
        image = self._image
        if image.reading or not self._missing:
            return None
        if (due := image.find_due(self.pool.shape.template_hash, now)) > now:
            return due
        self._missing = False
        pod = _choose_pod(self.pool)
        if pod is None or self._knows(pod):
            return None
        image.template, image.id = pod.seen.template, _read_image_id(pod)
        image.reading, image.next_at = True, now + _AGAIN_SECONDS
        self.services.tasks.spawn(self._read(pod, image), name=f"libraries of {pod.name}")
        return None

    def _knows(self, pod: Pod) -> bool:
        return self.pool.libraries.knows(pod.seen.template) and _read_image_id(pod) == self._image.id

    async def _read(self, pod: Pod, image: _Image) -> None:
        connection = self.services.connect(self.pool, pod)
        try:
            # an answer takes the pod's CPU for a moment: executions come first
            await self.services.write_priority.wait_until_idle()
            libraries = await connection.get_libraries(timeout_seconds=_READ_SECONDS)
        except SandboxError as error:
            image.backoff.fail(monotonic())
            self._missing = True
            log.info("the libraries of pod %s were not read: %s", pod.name, error, extra={"pool": self.pool.name})
        else:
            image.backoff.succeed()
            self.pool.libraries.set(libraries, template=pod.seen.template)
        finally:
            image.reading = False
            self.pool.changed()


def _choose_pod(pool: Pool) -> Pod | None:
    """Return a pod of the present template that can be asked: an idle one, else one that runs code."""
    for state in (PodState.WARM, PodState.OWNED, PodState.BUSY):
        for pod in pool.pods.each(state):
            if (
                pod.seen.template == pool.shape.template_hash
                and pod.seen.address
                and pod.trust.verified
                and not pod.lost
            ):
                return pod
    return None


def _read_image_id(pod: Pod) -> str:
    """Return the id of the image that the pod runs, which changes with a tag's image. Empty if it is unknown."""
    statuses = ((pod.seen.body or {}).get("status") or {}).get("containerStatuses") or []
    return next((str(each.get("imageID") or "") for each in statuses if each.get("name") == SANDBOX_CONTAINER), "")
