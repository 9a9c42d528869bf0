"""What may end a run early: its deadline, a cancellation, and the loss of its pod or its node."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import ceil, inf
from time import monotonic
from typing import Final

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.record import ExecutionRecord
from mcp_exec_operator.core.pods.manifest import busy_patch
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.pod import Pod

log = logging.getLogger(__name__)

_LABEL_AFTER_SECONDS: Final = 0.1
"""How long a run lasts before its pod is labelled: most runs end earlier and save one API write."""
CANCEL_SECONDS: Final = 10.0
"""How long a cancelled run may take to send its end."""
_CANCEL_NAMESPACE_SECONDS: Final = 2.0
"""The same if its namespace is being deleted: after five seconds Kubernetes deletes the NetworkPolicies."""
_LAST_EVENTS_SECONDS: Final = 1.0
"""How long the events of a lost pod are still read: its end may be in flight."""
_POLL_SECONDS: Final = 1.0
"""Interval of requests to a sandbox on a lost node. It is given up when two in a row get no response."""
_GRANT_GRACE_SECONDS: Final = 60
_CANCEL_DELAYS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0)
"""Seconds after each request to cancel."""


@dataclass(kw_only=True, eq=False)
class RunDeadline:
    """When a run ends at the latest. Waits for approvals extend it; a cancellation or a loss shortens it."""

    uid: str
    """Uid of the execution."""
    seconds: float
    """The limit without waits."""
    over: bool = False
    """Whether the run has ended."""
    _connection: SupervisorConnection | None = None
    _timeout: asyncio.Timeout | None = None
    _base: float = 0.0
    """The limit without waits, by the loop's clock."""
    _extension_seconds: float = 0.0
    """How long calls wait for approvals, as the broker confirmed it."""
    _cut: float = inf
    """When a run ends at the latest that was cancelled or lost, by the loop's clock."""

    @property
    def grant_seconds(self) -> int:
        """Validity of the run's grants without waits: until its end, with the binding before and the calls after it."""
        return ceil(self.seconds) + _GRANT_GRACE_SECONDS

    @asynccontextmanager
    async def running(self, connection: SupervisorConnection) -> AsyncIterator[None]:
        """End the context with TimeoutError when the time is over. `connection` is that to the run's sandbox."""
        self._connection = connection
        async with asyncio.timeout(self.seconds) as self._timeout:
            self._base = self._timeout.when() or 0.0
            self._apply()
            try:
                yield
            finally:
                # before the context ends, whose time cannot be changed afterwards
                self.over = True

    async def extend(self, seconds: float) -> bool:
        """Let the run take so much longer for its waits, in all. Return whether the sandbox has it, too."""
        self._extension_seconds = seconds
        self._apply()
        if self._connection is None:
            return False
        try:
            await self._connection.extend(self.uid, seconds)
        except SandboxError as error:
            log.info("the clock of a run was not set: %s", error, extra={"uid": self.uid})
            return False
        return True

    def cut(self, seconds: float) -> None:
        """Let the run end at most so many seconds from now."""
        self._cut = min(self._cut, asyncio.get_running_loop().time() + seconds)
        self._apply()

    def _apply(self) -> None:
        if self._timeout is not None and not self.over and not self._timeout.expired():
            self._timeout.reschedule(min(self._base + self._extension_seconds, self._cut))


@dataclass(kw_only=True, eq=False)
class RunSupervision:
    """Shortens the deadline of a run after a cancellation, or if its pod or node is lost. Labels the pod meanwhile."""

    record: ExecutionRecord
    pod: Pod
    connection: SupervisorConnection
    deadline: RunDeadline
    api: OperatorApi
    tasks: TaskRegistry
    nodes: NodeCache
    silent: bool = False
    """Whether the supervisor did not respond to polls."""
    _cancelling: bool = False
    """Whether the supervisor is being asked to cancel."""
    _polling: bool = False
    """Whether the supervisor is being polled, or did not respond, because its node is lost."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End the context with TimeoutError at the deadline."""
        self.pod.wakeup = self.record.wakeup
        observer = self.tasks.spawn(self._observe(), name=f"observe {self.pod.name}")
        async with self.deadline.running(self.connection):
            try:
                yield
            finally:
                observer.cancel()

    async def _observe(self) -> None:
        """React to wakeups until cancelled."""
        pod, wakeup = self.pod, self.record.wakeup
        # the label of its owner says the same
        label_at = None if pod.labelled_busy or pod.owner else monotonic() + _LABEL_AFTER_SECONDS
        while True:
            wakeup.clear()
            if pod.lost:
                self.deadline.cut(_LAST_EVENTS_SECONDS)
            if self.record.is_unwanted and not self._cancelling:
                self._cancelling = True
                self.deadline.cut(_CANCEL_NAMESPACE_SECONDS if self.record.cancelled else CANCEL_SECONDS)
                self.tasks.spawn(self._cancel(), name=f"cancel {self.record.name}")
            # a sandbox may go on without its node, as it does while a kubelet restarts
            if not self._polling and self.nodes.loss_reason(pod.node):
                self._polling = True
                self.tasks.spawn(self._poll(), name=f"poll {pod.name}")
            with suppress(TimeoutError):
                async with asyncio.timeout(None if label_at is None else max(0.0, label_at - monotonic())):
                    await wakeup.wait()
            if label_at is not None and monotonic() >= label_at:
                label_at = None
                self.tasks.spawn(self._label_pod(), name=f"label {pod.name}")

    async def _poll(self) -> None:
        """End the run if the supervisor does not respond, as long as its node is lost."""
        failures = 0
        while not self.deadline.over and self.nodes.loss_reason(self.pod.node):
            try:
                await self.connection.get_execution()
                failures = 0
            except SandboxError:
                failures += 1
            if failures > 1:
                self.silent = True
                self.deadline.cut(0.0)
                return
            await asyncio.sleep(_POLL_SECONDS)
        self._polling = False

    async def _cancel(self) -> None:
        """Ask the supervisor to end the run; again if the first request came before the run began."""
        for delay in _CANCEL_DELAYS:
            try:
                await self.connection.cancel(self.record.uid)
            except SandboxError as error:
                log.info("a run was not cancelled: %s", error, extra=self.record.log_fields)
            await asyncio.sleep(delay)
            if self.deadline.over:
                return

    async def _label_pod(self) -> None:
        patch = busy_patch(execution_name=self.record.name, pod_uid=self.record.pod_uid)
        try:
            await self.api.patch_pod(self.record.namespace, self.pod.name, patch)
        except ApiError as error:
            # the execution's status has the same fact, and that is what counts; 409: another pod has the name
            if error.code not in (404, 409):
                log.warning("a pod was not labelled: %s", error, extra=self.record.log_fields)
