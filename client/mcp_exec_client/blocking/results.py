"""Results of the blocking client: what can be read through them is read by blocking methods."""

from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from pydantic import PrivateAttr

from mcp_exec_client.blocking.loop import LoopThread
from mcp_exec_client.blocking.methods import Blocking
from mcp_exec_client.state.results import MAX_READ_BYTES, Content, ExecutionArtifact
from mcp_exec_client.types import Execution

_P = ParamSpec("_P")
_Target = TypeVar("_Target")


class BlockingArtifact(ExecutionArtifact):
    """An artifact whose methods block."""

    _loop: LoopThread = PrivateAttr()

    @classmethod
    def wrap(cls, artifact: ExecutionArtifact, loop: LoopThread) -> "BlockingArtifact":
        """Return an artifact whose methods use the loop."""
        made = cls.model_construct(**{name: getattr(artifact, name) for name in ExecutionArtifact.model_fields})
        made._loop, made._open = loop, artifact._open  # noqa: SLF001
        return made

    def read(self, *, max_bytes: int = MAX_READ_BYTES) -> Content:  # type: ignore[override] # the same, but it blocks
        """Return the artifact's bytes. Raises UnexpectedResponse if there are more than `max_bytes`."""
        return self._loop.run(super().read(max_bytes=max_bytes))

    def save(self, path: str | Path | None = None) -> Path:  # type: ignore[override] # the same, but it blocks
        """Write the artifact to a file, or by its name into a folder, and return the file's path."""
        return self._loop.run(super().save(path))


class BlockingExecution(Execution):
    """An execution whose artifacts have blocking methods."""

    artifacts: list[BlockingArtifact] = []  # type: ignore[assignment] # the same, but they block

    @classmethod
    def wrap(cls, execution: Execution, loop: LoopThread) -> "BlockingExecution":
        """Return an execution whose artifacts use the loop."""
        fields = {name: getattr(execution, name) for name in Execution.model_fields}
        artifacts = [BlockingArtifact.wrap(artifact, loop) for artifact in execution.artifacts]
        return cls.model_construct(execution.model_fields_set, **(fields | {"artifacts": artifacts}))


def running(
    method: Callable[Concatenate[_Target, _P], Awaitable[Execution]],
) -> Callable[Concatenate[Blocking[_Target], _P], BlockingExecution]:
    """Return a method that waits for this method of its target, which returns an execution."""

    @wraps(method)
    def call(self: Blocking[_Target], /, *arguments: _P.args, **options: _P.kwargs) -> BlockingExecution:
        execution = self.call(lambda target: method(target, *arguments, **options))
        return BlockingExecution.wrap(execution, self._loop)

    return call
