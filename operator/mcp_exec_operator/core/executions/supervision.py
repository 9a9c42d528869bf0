"""What may end a run early: a cancellation, and the loss of its pod or its node."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.execution import Execution
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
_CANCEL_DELAYS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0)
"""Seconds after each request to cancel."""


@dataclass(kw_only=True, eq=False)
class RunSupervision:
    """Shortens the deadline of a run after a cancellation, or if its pod or node is lost. Labels the pod meanwhile."""

    execution: Execution
    pod: Pod
    connection: SupervisorConnection
    api: OperatorApi
    tasks: TaskRegistry
    nodes: NodeCache
    silent: bool = False
    """Whether the supervisor did not respond to polls."""
    _cancelling: bool = False
    """Whether the supervisor is being asked to cancel."""
    _polling: bool = False
    """Whether the supervisor is being polled, or did not respond, because its node is lost."""

    async def run(self) -> None:
        """React to wakeups of execution and pod until cancelled."""
        pod, deadline, wakeup = self.pod, self.execution.deadline, self.execution.wakeup
        pod.wakeup = wakeup
        # the label of its owner says the same
        label_at = None if pod.seen.labelled_busy or pod.use.owner else monotonic() + _LABEL_AFTER_SECONDS
        while True:
            wakeup.clear()
            if pod.lost:
                deadline.cut(_LAST_EVENTS_SECONDS)
            if self.execution.is_unwanted and not self._cancelling:
                self._cancelling = True
                deadline.cut(_CANCEL_NAMESPACE_SECONDS if self.execution.cancelled else CANCEL_SECONDS)
                self.tasks.spawn(self._cancel(), name=f"cancel {self.execution.facts.name}")
            # a sandbox may go on without its node, as it does while a kubelet restarts
            if not self._polling and self.nodes.loss_reason(pod.seen.node):
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
        while not self.execution.deadline.over and self.nodes.loss_reason(self.pod.seen.node):
            try:
                await self.connection.get_execution()
                failures = 0
            except SandboxError:
                failures += 1
            if failures > 1:
                self.silent = True
                self.execution.deadline.cut(0.0)
                return
            await asyncio.sleep(_POLL_SECONDS)
        self._polling = False

    async def _cancel(self) -> None:
        """Ask the supervisor to end the run; again if the first request came before the run began."""
        for delay in _CANCEL_DELAYS:
            try:
                await self.connection.cancel(self.execution.facts.uid)
            except SandboxError as error:
                log.info("a run was not cancelled: %s", error, extra=self.execution.log_fields)
            await asyncio.sleep(delay)
            if self.execution.deadline.over:
                return

    async def _label_pod(self) -> None:
        patch = busy_patch(execution_name=self.execution.facts.name, pod_uid=self.execution.pod_uid)
        try:
            await self.api.patch_pod(self.execution.facts.namespace, self.pod.name, patch)
        except ApiError as error:
            # the execution's status has the same fact, and that is what counts; 409: another pod has the name
            if error.code not in (404, 409):
                log.warning("a pod was not labelled: %s", error, extra=self.execution.log_fields)
