"""Deletion of finished executions, before their time to live is over.

The gateway deletes what features store of the execution, such as artifacts. The operator deletes the object, as it does
at the end of every time to live: if records are kept, only after the execution's record is stored.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from mcp_exec_api.code_execution import is_finished, read_phase
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.executions.index import ExecutionDeleted, ShuttingDown
from mcp_exec_gateway.core.executions.service import ExecutionService
from mcp_exec_gateway.core.executions.submission import is_object_name
from mcp_exec_gateway.core.extensions import Deletion
from mcp_exec_gateway.core.http.access_log import get_trace
from mcp_exec_gateway.core.http.problems import HttpProblem, unavailable

_MAX_ATTEMPTS: Final = 8
DELETION_SECONDS: Final = 5.0
"""Seconds that the operator usually needs to delete an execution."""


@dataclass(frozen=True, kw_only=True)
class ExecutionDeleter:
    """Deletes finished executions, with what features store of them."""

    kube: KubeClient
    executions: ExecutionService
    deletions: Sequence[Deletion] = ()
    wait_seconds: float = DELETION_SECONDS

    async def delete(self, request: Request, name: str, *, caller: Caller) -> Object | None:
        """Delete a finished execution. Return None, or the execution if the operator has not deleted it yet.

        Raises HttpProblem: 404 if it does not exist or the caller may not see it, 409 if it has not ended, 503.
        """
        if is_object_name(name):
            get_trace(request.scope).execution = name
        execution = await self._find(name, caller=caller)
        uid = execution["metadata"]["uid"]
        for delete in self.deletions:
            await delete(execution)
        key: ObjectKey = (caller.namespace, name)
        index = self.executions.index
        with (
            self.executions.hold_wait(caller, self.wait_seconds),
            index.wait_for(key, lambda current: current["metadata"]["uid"] != uid) as deleted,
        ):
            if not await self._expire(name, uid, caller=caller):
                return None
            try:
                async with asyncio.timeout(self.wait_seconds):
                    await deleted
            except ExecutionDeleted:
                return None
            except (TimeoutError, ShuttingDown):
                return execution
        return None

    async def _find(self, name: str, *, caller: Caller) -> Object:
        execution = await self.executions.find(name, caller=caller)
        if not is_finished(execution):
            detail = f"execution {name} is {read_phase(execution)}: cancel it, and delete it once it has ended"
            raise HttpProblem("unfinished", 409, detail, execution=name)
        return execution

    async def _expire(self, name: str, uid: str, *, caller: Caller) -> bool:
        """End the execution's time to live, and return whether it exists."""
        path = custom_resource_path(EXECUTIONS, namespace=caller.namespace, name=name)
        for _ in range(_MAX_ATTEMPTS):
            try:
                metadata = (await self._find(name, caller=caller))["metadata"]
                if metadata["uid"] != uid:
                    return False
                version = {"resourceVersion": metadata["resourceVersion"]}
                await self.kube.patch(path, {"metadata": version, "spec": {"ttlSecondsAfterFinished": 0}})
            except HttpProblem as problem:
                if problem.status == 404:
                    return False
                raise
            except ApiError as error:
                if error.code == 404:
                    return False
                if error.code != 409:
                    raise
            else:
                return True
        raise unavailable(f"the execution changed during each of {_MAX_ATTEMPTS} attempts", execution=name)
