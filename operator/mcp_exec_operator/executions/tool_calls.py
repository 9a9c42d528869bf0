"""What an execution calls, as the broker counts it: at its end all of it, and meanwhile what waits for consent."""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from mcp_exec_api.approvals import Approval, ApprovalState
from mcp_exec_api.code_execution import Phase, ToolCalls
from mcp_exec_api.constants import API_VERSION
from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.broker.client import BrokerClient, BrokerError, ExecutionCalls
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.executions.outcome import Superseded
from mcp_exec_operator.executions.output import shorten
from mcp_exec_operator.executions.record import Entry, phase_of
from mcp_exec_operator.executions.status import Outcome, approvals_status, lean
from mcp_exec_operator.executions.status_writer import ExecutionGone, StatusTooLarge, StatusWriter
from mcp_exec_operator.kube.api import OperatorApi

log = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 2.0
"""How long the broker may take to say what was called."""
_POLL_SECONDS: Final = 2.0
"""How often it is asked while something waits for consent."""
_LEAST_SECONDS: Final = 0.5
"""How often at most, whatever the sandbox hints at."""
_MAX_APPROVALS: Final = 50
_MAX_ARGUMENTS: Final = 2048
_MAX_TOOLS: Final = 64


@dataclass(kw_only=True, eq=False)
class Calls:
    """The calls of one execution while it runs. A sandbox's word is a hint to ask the broker, and no more."""

    entry: Entry
    brokers: BrokerClient
    api: OperatorApi
    writer: StatusWriter
    tasks: TaskRegistry
    clock: Callable[[], datetime] = now
    _known: ExecutionCalls = field(default_factory=ExecutionCalls)
    """What the broker said last."""
    _told: list[Object] = field(init=False)
    """The approvals that the status has."""
    _hinted: asyncio.Event = field(default_factory=asyncio.Event)
    _watching: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        # an operator before this one may have written them
        self._told = list(self.entry.status.get("approvals") or [])
        if any(each.get("state") == ApprovalState.PENDING for each in self._told):
            self.hint()

    def hint(self) -> None:
        """A call may wait for consent: the broker is asked."""
        self._hinted.set()
        if self._watching is None or self._watching.done():
            self._watching = self.tasks.spawn(self._watch(), name=f"approvals of {self.entry.name}")

    async def stop(self) -> None:
        """Nothing is written from here any more."""
        if self._watching is not None:
            while not self._watching.done():
                self._watching.cancel()
                await asyncio.wait({self._watching}, timeout=1)

    async def abandon(self) -> None:
        """Ends at the broker what goes on of an execution that is gone."""
        with suppress(BrokerError):
            await self.brokers.close_calls(self.entry.uid, timeout_seconds=_CLOSE_SECONDS)

    async def closed(self, outcome: Outcome) -> Outcome:
        """The outcome with what was called. It ends what still goes on at the broker, and takes two seconds at most."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS + 0.5):
                found = await self.brokers.close_calls(self.entry.uid, timeout_seconds=_CLOSE_SECONDS)
        except (BrokerError, TimeoutError) as error:
            log.warning("the calls of an execution are not known: %s", error, extra=self.entry.log_fields)
            calls = self._known.tool_calls.model_copy(update={"complete": False})
            # nothing waits any more, whatever the broker said last
            told = [
                {**each, "state": ApprovalState.WITHDRAWN} if each.get("state") == ApprovalState.PENDING else each
                for each in self._told
            ]
        else:
            calls, told = found.tool_calls, _said(found.approvals)
        return replace(outcome, tool_calls=_counted(calls, outcome.output), approvals=told)

    async def _watch(self) -> None:
        """Asks as long as anything waits."""
        while True:
            self._hinted.clear()
            waits = await self._look()
            if not waits and not self._hinted.is_set():
                return
            await asyncio.sleep(_LEAST_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS - _LEAST_SECONDS):
                    await self._hinted.wait()

    async def _look(self) -> bool:
        """Brings the status up to date. True where something waits, or where the broker does not answer."""
        try:
            self._known = await self.brokers.get_calls(self.entry.uid)
        except BrokerError as error:
            log.info("it is not known what waits for consent: %s", error, extra=self.entry.log_fields)
            return True
        said = _said(self._known.approvals)
        if said != self._told:
            known = {each["id"] for each in self._told}
            if not await self._write(said):
                return True
            self._told = said
            for each in said:
                if each["state"] == ApprovalState.PENDING and each["id"] not in known:
                    await self._tell(each)
        return any(each["state"] == ApprovalState.PENDING for each in said)

    async def _write(self, approvals: list[Object]) -> bool:
        def decide(body: Object) -> Object | None:
            if phase_of(body) is not Phase.RUNNING:
                raise Superseded
            return approvals_status(body.get("status") or {}, approvals)

        try:
            await self.writer.write(self.entry, decide, what="approvals")
        except (ApiError, StatusTooLarge, ExecutionGone, Superseded) as error:
            log.info("what waits for consent is not in the status: %s", error, extra=self.entry.log_fields)
            return False
        return True

    async def _tell(self, approval: Object) -> None:
        try:
            await self.api.create_event(approval_event(self.entry, approval, moment=self.clock()))
        except ApiError as error:
            log.warning("no Event for an execution: %s", error, extra=self.entry.log_fields)


def approval_event(entry: Entry, approval: Object, *, moment: datetime) -> Object:
    """That a call waits for somebody's consent, for `kubectl describe`."""
    at = micro_time(moment)[:19] + "Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{entry.name[:200]}.", "namespace": entry.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": "CodeExecution",
            "namespace": entry.namespace,
            "name": entry.name,
            "uid": entry.uid,
        },
        "type": "Normal",
        "reason": "ApprovalNeeded",
        "message": f"a call of {approval['tool']} waits for consent until {approval['expiresAt']}, "
        f"by the id {approval['id']}",
        "source": {"component": "mcp-exec-operator"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _said(approvals: list[Approval]) -> list[Object]:
    """The newest approvals as a status has them."""
    return [
        lean({**each.to_api(), "arguments": shorten(each.arguments, _MAX_ARGUMENTS) or "{}"})
        for each in approvals[-_MAX_APPROVALS:]
    ]


def _counted(calls: ToolCalls, output: Object | None) -> Object:
    """The counts with what stayed inside: what came in less what the code wrote and returned."""
    said = output or {}
    result = said.get("result")
    out = int(said.get("stdoutBytes") or 0)
    out += 0 if result is None else len(json.dumps(result, ensure_ascii=False).encode("utf-8", "replace"))
    by_tool = {name: count for name, count in list(calls.by_tool.items())[:_MAX_TOOLS] if name}
    return calls.model_copy(update={"bytes_kept": max(0, calls.bytes_in - out), "by_tool": by_tool}).to_api()
