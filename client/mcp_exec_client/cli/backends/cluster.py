"""Executions at the API server, with the rights of a kubeconfig: for clusters whose gateway can't be reached."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from mcp_exec_api.code_execution import is_finished
from mcp_exec_api.constants import (
    ACCOUNT_PREFIX,
    ANNOTATION_CREATED_BY,
    API_VERSION,
    EXECUTIONS,
    LABEL_CALLER,
)
from mcp_exec_api.wire.execution_views import build_execution_summary, build_execution_view, read_listed
from mcp_exec_api.wire.executions import ExecutionMetadata
from mcp_exec_client.cli.backends.backend import Decision, Selection, is_unobserved
from mcp_exec_client.cli.backends.cluster_resources import ClusterResources
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import Object
from mcp_exec_client.network import describe_failure
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.credentials import CredentialsError
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.pages import TableRow
from mcp_exec_common.util.backoff import delays

_NAMESPACE: Final = "default"
"""Namespace if neither an option nor the context names one, as in kubectl."""
_MAX_LISTED: Final = 20_000
_MAX_DECISIONS: Final = 256
_WATCH_DELAYS: Final = tuple(delays(first=0.1, last=5.0, factor=2.0, attempts=8))
_NO_CATALOG: Final = (
    "the API server has no catalogs of tools: use --gateway, or list the servers with kubectl get toolservers"
)
_METADATA: Final = tuple(field.alias or name for name, field in ExecutionMetadata.model_fields.items())
"""Fields of a request that are no part of a spec."""
_END_FIELDS: Final = ("phase", "reason", "error", "start", "podName", "durations", "notes")


@dataclass(kw_only=True)
class ClusterBackend(ClusterResources):
    """Executions of one namespace of a cluster, and its other objects."""

    streams_output: bool = field(default=False, init=False)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, *, kubeconfig: Path | None, context: str | None, namespace: str | None
    ) -> AsyncIterator["ClusterBackend"]:
        """Connect with a kubeconfig file, or with the pod's service account if that is None. Raises CommandError."""
        try:
            async with KubeClient.connect(kubeconfig=kubeconfig, context=context, connections=4) as kube:
                yield cls(kube=kube, namespace=namespace or kube.credentials.namespace or _NAMESPACE)
        except CredentialsError as error:
            raise CommandError(str(error), ExitCode.USAGE) from error
        except OSError as error:
            raise CommandError(f"{kubeconfig}: {error}", ExitCode.USAGE) from error
        except ApiError as error:
            raise _to_command_error(error) from error

    async def submit(self, new: Object) -> Object:
        """Create an execution and return it without waiting for its end."""
        # not validated: the API server decides about what comes past the gateway
        metadata = ExecutionMetadata.model_construct(**{field: new[field] for field in _METADATA if field in new})
        labels = metadata.build_labels()
        # the name is chosen here, so that a creation whose response is lost can be found
        name = metadata.name or f"exec-{secrets.token_hex(6)}"
        execution = {
            "apiVersion": API_VERSION,
            "kind": "CodeExecution",
            "metadata": {"name": name, "namespace": self.namespace, **({"labels": labels} if labels else {})},
            "spec": {field: value for field, value in new.items() if field not in _METADATA},
        }
        return build_view(await self.kube.create(self._path(), execution))

    async def follow(self, name: str) -> AsyncGenerator[Object, None]:
        """Yield the changes of an execution's status as events; its output follows at the end."""
        changes = StatusChanges()
        async with aclosing(self._watch(name)) as versions:
            async for execution in versions:
                for event in changes.read(execution):
                    yield event
                if execution is None or is_finished(execution):
                    return

    async def get(self, name: str, *, with_code: bool = False) -> Object:
        """Return an execution, with `code` if wanted."""
        with _translating():
            execution = await self.kube.get(self._path(name))
        return build_view(execution, with_code=with_code)

    async def list_executions(self, selection: Selection) -> list[Object]:
        """Return executions without their output, newest first."""
        found: list[Object] = []
        token = None
        while True:
            page = await self.kube.get_table(self._path(), limit=500, token=token, selector=selection.labels)
            found += [build_summary(row) for row in page.rows]
            token = page.token
            if token is None or len(found) >= _MAX_LISTED:
                break
        wanted = [
            item
            for item in found
            if selection.phase in (None, item["phase"])
            and selection.caller in (None, str(item.get("caller", "")).removeprefix("claimed:"))
        ]
        wanted.sort(key=lambda item: (item["createdAt"], item["name"]), reverse=True)
        return wanted[: selection.limit]

    async def cancel(self, name: str) -> Object:
        """Request the cancellation of an execution and return it."""
        with _translating():
            return build_view(await self.kube.patch(self._path(name), {"spec": {"cancelRequested": True}}))

    async def delete(self, name: str) -> bool:
        """End the time to live of an execution that has ended: the operator deletes it once its record is stored."""
        with _translating():
            execution = await self.kube.get(self._path(name))
            if not is_finished(execution):
                phase = build_view(execution)["phase"]
                problem = f"{name} is {phase}: cancel it, and delete it once it has ended"
                raise CommandError(problem, ExitCode.REFUSED)
            version = {"resourceVersion": execution["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "spec": {"ttlSecondsAfterFinished": 0}}
            await self.kube.patch(self._path(name), patch)
        return False

    async def withdraw(self, name: str) -> str:
        """Delete an execution that no operator has observed; what has been observed since then is cancelled."""
        execution = await self.cancel(name)
        if not is_unobserved(execution):
            return f"{name} is being cancelled"
        with _translating():
            await self.kube.delete(self._path(name))
        return f"{name} is deleted"

    async def find_unserved(self) -> str | None:
        """Return that the namespace is not served, unless an operator has observed a pool of it.

        Without the right to list pools of all namespaces, the sentence does not name those that are served.
        """
        with _translating():
            if await self.is_served():
                return None
            served = ", ".join(await self.find_served())
        hint = f" (served: {served}); use -n" if served else "; use -n with a namespace of the chart's `namespaces`"
        return f"namespace {self.namespace} is not served by mcp-exec{hint}"

    async def list_approvals(self, name: str | None) -> list[Object]:
        """Return the approvals of an execution, or the pending ones of the namespace, each with its `execution`."""
        names = (
            [name]
            if name is not None
            else [item["name"] for item in await self.list_executions(Selection(phase="Running", limit=500))]
        )
        found: list[Object] = []
        for execution in names:
            approvals = (await self.get(execution)).get("approvals") or []
            found += [
                {**approval, "execution": execution} for approval in approvals if name or approval["state"] == "Pending"
            ]
        return found

    async def decide(self, name: str, approval: str, decision: Decision) -> Object:
        """Append a decision to the execution's spec and return the approval. The first decision counts."""
        with _translating():
            return await self._append(name, approval, decision)

    async def _append(self, name: str, approval: str, decision: Decision) -> Object:
        entry = {"id": approval, "decision": decision.choice}
        if username := await self.find_username():
            entry["by"] = username
        if decision.comment:
            entry["comment"] = decision.comment
        if decision.arguments_digest:
            entry["argumentsDigest"] = decision.arguments_digest

        def build_change(execution: Object) -> Object:
            _find_pending(execution, approval)
            earlier = (execution["spec"].get("approvals") or [])[-(_MAX_DECISIONS - 1) :]
            return {"approvals": [*earlier, entry]}

        changed = await self.change(self._path(name), build_change)
        return {**_find_pending(changed, approval), "state": "Approved" if decision.choice == "Approve" else "Denied"}

    async def search_tools(self, query: str, *, limit: int, schemas: bool = False) -> list[Object]:
        """Raise CommandError: only a gateway can search."""
        raise CommandError(_NO_CATALOG, ExitCode.REFUSED)

    def _path(self, name: str | None = None) -> str:
        return self.path(EXECUTIONS, name)

    async def _watch(self, name: str) -> AsyncGenerator[Object | None, None]:
        """Yield each version of an execution, and None if it was deleted. Lost watches are opened again."""
        failures = 0
        while True:
            execution = await self._find(name)
            yield execution
            if execution is None:
                return
            version = execution["metadata"]["resourceVersion"]
            watch = self.kube.watch(self._path(), resource_version=version, fields=f"metadata.name={name}")
            try:
                async with aclosing(watch) as events:
                    async for event in events:
                        failures = 0
                        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                            yield None if event["type"] == "DELETED" else event["object"]
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                failures += 1
                gone = isinstance(error, ApiError) and error.code == 410
                if failures > len(_WATCH_DELAYS) or (
                    isinstance(error, ApiError) and 400 <= error.code < 500 and not gone
                ):
                    raise _to_command_error(error) from error
                await asyncio.sleep(_WATCH_DELAYS[failures - 1])

    async def _find(self, name: str) -> Object | None:
        try:
            return await self.kube.get(self._path(name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise


class StatusChanges:
    """Events for what changed between two versions of an execution, in the form of the gateway's."""

    def __init__(self) -> None:
        self._state: tuple[object, object] | None = None
        self._announced: set[str] = set()

    def read(self, execution: Object | None) -> Iterator[Object]:
        """Yield the events of a version; None stands for an execution that was deleted."""
        if execution is None:
            yield {"type": "end", "phase": None, "reason": "Deleted"}
            return
        status = execution.get("status") or {}
        state = (status.get("phase") or "Pending", status.get("reason") or "")
        if state != self._state and not is_finished(execution):
            self._state = state
            yield {"type": "status", "phase": state[0], "reason": state[1], "queue": status.get("queue")}
        for approval in status.get("approvals") or []:
            if approval["state"] == "Pending" and approval["id"] not in self._announced:
                self._announced.add(approval["id"])
                yield {
                    "type": "approval",
                    "approval": approval["id"],
                    **{k: approval.get(k) for k in ("tool", "expiresAt")},
                }
        if is_finished(execution):
            yield from _read_end(status)


def _read_end(status: Object) -> Iterator[Object]:
    output = status.get("output") or {}
    for stream in ("stdout", "stderr"):
        if text := output.get(stream):
            yield {"type": stream, "text": text}
    if "result" in output:
        yield {"type": "result", "value": output["result"], "truncated": output.get("truncated", False)}
    yield {"type": "end", **{name: status[name] for name in _END_FIELDS if name in status}}


def build_view(execution: Object, *, with_code: bool = False) -> Object:
    """Return an execution in the form of the gateway's responses."""
    return build_execution_view(execution, caller=_read_caller(execution["metadata"]), with_code=with_code)


def build_summary(row: TableRow) -> Object:
    """Return a table's row in the form of the gateway's lists."""
    return build_execution_summary(read_listed(row.metadata, row.cells), caller=_read_caller(row.metadata))


def _read_caller(metadata: Object) -> str:
    """Return the creator that the object names. Its proof can't be checked here."""
    caller = (metadata.get("labels") or {}).get(LABEL_CALLER)
    account = (metadata.get("annotations") or {}).get(ANNOTATION_CREATED_BY)
    caller = caller or (account and f"{ACCOUNT_PREFIX}{account}")
    return f"claimed:{caller}" if caller else ""


def _find_pending(execution: Object, approval_id: str) -> Object:
    name = execution["metadata"]["name"]
    for approval in (execution.get("status") or {}).get("approvals") or []:
        if approval["id"] == approval_id:
            if approval["state"] != "Pending" or is_finished(execution):
                raise CommandError(f"approval {approval_id} of {name} is {approval['state']}", ExitCode.REFUSED)
            return dict(approval)
    raise CommandError(f"{name} has no approval {approval_id}: list them with `approvals {name}`", ExitCode.REFUSED)


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise _to_command_error(error) from error


def _to_command_error(error: Exception) -> CommandError:
    if isinstance(error, ApiError) and 400 <= error.code < 500 and error.code != 429:
        return CommandError(f"the API server refused the request: {error.message}", ExitCode.REFUSED)
    return CommandError(f"the API server does not answer: {describe_failure(error)}", ExitCode.UNAVAILABLE)
