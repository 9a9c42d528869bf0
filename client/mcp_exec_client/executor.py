"""Runs code by one call with limits, for applications that expect a code executor."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Unpack, cast

from pydantic import JsonValue

from mcp_exec_api.meta import parse_quantity
from mcp_exec_api.wire.stats import PoolCapacity
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import CodeRefused, McpExecError
from mcp_exec_client.options import ExecutionOptions, RunOptions, suggesting
from mcp_exec_client.types import Execution

_TIMEOUT_SECONDS: Final = 30
_POOLS_SECONDS: Final = 30.0
"""Time until the pools that a gateway offers are requested again."""
_MEMORY: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)
_MEBIBYTE: Final = 2**20


class LimitsNotOffered(McpExecError):
    """Limits that no pool offers. The text has the pools and their limits."""


@dataclass(frozen=True, kw_only=True)
class CodeResult:
    """Outcome of code. Each field is available as an attribute and as an item: `result["success"]`."""

    success: bool
    output: str
    """Standard output of the code."""
    error: str | None
    """Why the code failed, on one line; None if it succeeded."""
    execution_time_ms: int
    """Time that the code ran, rounded up; 0 if it did not run."""
    result: JsonValue = None
    """Value that the code returned, its last expression, or its variable `result`."""
    execution: Execution | None = field(default=None, repr=False)
    """The execution; None if the pool's static check rejected the code."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)


@suggesting
class CodeExecutor:
    """Runs code in sandboxes: `await CodeExecutor(client).execute(code, context)`.

    Without a client, each call uses one of its own, from $MCP_EXEC_GATEWAY and $MCP_EXEC_API_KEY. Limits that are given
    here are the defaults of `execute`. A memory or CPU limit selects the smallest pool whose sandboxes have at least
    that much; the sandbox enforces the limits of its pool.
    """

    def __init__(
        self,
        client: AsyncClient | None = None,
        *,
        timeout: float = _TIMEOUT_SECONDS,
        memory_limit: str | int | None = None,
        cpu_limit: float | str | None = None,
        **options: Unpack[ExecutionOptions],
    ) -> None:
        self._client = client
        self._timeout = timeout
        self._memory_limit = memory_limit
        self._cpu_limit = cpu_limit
        self._options = options
        self._pools: Sequence[PoolCapacity] = ()
        self._pools_expire = 0.0

    async def execute(
        self,
        code: str,
        context: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        memory_limit: str | int | None = None,
        cpu_limit: float | str | None = None,
        **options: Unpack[ExecutionOptions],
    ) -> CodeResult:
        """Run code and return its outcome. `context` becomes variables; it is never part of the code.

        Raises LimitsNotOffered if no pool has these limits, and the errors of AsyncClient.run. Failures of the code are
        results: an exception, the time limit, a pool's static check.
        """
        chosen = cast(RunOptions, {**self._options, **options})
        if "timeout_seconds" in chosen:
            raise TypeError("unknown option 'timeout_seconds'; the executor's is timeout")
        if context is not None:
            chosen["context"] = context
        seconds = chosen["timeout_seconds"] = math.ceil(self._timeout if timeout is None else timeout)
        memory = self._memory_limit if memory_limit is None else memory_limit
        cpus = self._cpu_limit if cpu_limit is None else cpu_limit
        async with self._use_client() as client:
            if memory is not None or cpus is not None:
                chosen["pool"] = select_pool(
                    await self._list_pools(client),
                    memory_bytes=0 if memory is None else parse_memory(memory),
                    cpus=Decimal(0) if cpus is None else parse_quantity(str(cpus)),
                    seconds=seconds,
                    pool=chosen.get("pool"),
                )
            try:
                return _build_result(await client.run(code, **chosen))
            except CodeRefused as error:
                return CodeResult(success=False, output="", error=error.detail, execution_time_ms=0)

    @asynccontextmanager
    async def _use_client(self) -> AsyncIterator[AsyncClient]:
        if self._client is not None:
            yield self._client
            return
        async with AsyncClient() as client:
            yield client

    async def _list_pools(self, client: AsyncClient) -> Sequence[PoolCapacity]:
        now = asyncio.get_running_loop().time()
        if now >= self._pools_expire:
            self._pools = (await client.stats()).pools
            self._pools_expire = now + _POOLS_SECONDS
        return self._pools


def select_pool(
    pools: Sequence[PoolCapacity], *, memory_bytes: int, cpus: Decimal, seconds: int, pool: str | None = None
) -> str:
    """Return the smallest pool that has at least these limits, among all or only `pool`. Raises LimitsNotOffered."""
    fitting = [
        (each.memory_bytes, each.cpus, each.name)
        for each in pools
        if pool in (None, each.name)
        and each.memory_bytes is not None
        and each.memory_bytes >= memory_bytes
        and each.cpus is not None
        and Decimal(str(each.cpus)) >= cpus
        and each.max_timeout_seconds >= seconds
    ]
    if fitting:
        return min(fitting)[2]
    offered = "; ".join(map(_describe_pool, pools)) or "none"
    wanted = f"{_format_memory(memory_bytes)} of memory, {cpus:f} CPUs and {seconds} s"
    which = f"pool {pool} does not offer" if pool else "no pool offers"
    raise LimitsNotOffered(f"{which} {wanted}; offered are {offered}")


def parse_memory(text: str | int) -> int:
    """Parse an amount of memory such as `512M`, `512Mi`, `1g` or a number of bytes. Raises ValueError."""
    match = _MEMORY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{str(text)[:100]!r} is not an amount of memory; examples are 512M and 1Gi")
    number, unit, binary = match.groups()
    base = 1024 if binary else 1000
    return int(Decimal(number) * base ** " kmgt".index(unit.lower() or " "))


def _describe_pool(pool: PoolCapacity) -> str:
    memory = "unknown memory" if pool.memory_bytes is None else _format_memory(pool.memory_bytes)
    cpus = "unknown" if pool.cpus is None else f"{pool.cpus:g}"
    return f"{pool.name} ({memory}, {cpus} CPUs, {pool.max_timeout_seconds} s)"


def _format_memory(size: int) -> str:
    return f"{size // _MEBIBYTE}Mi" if size % _MEBIBYTE == 0 else f"{size} bytes"


def _build_result(execution: Execution) -> CodeResult:
    return CodeResult(
        success=execution.succeeded,
        output=execution.stdout,
        error=None if execution.succeeded else _describe_failure(execution),
        execution_time_ms=math.ceil((execution.durations and execution.durations.run) or 0),
        result=execution.result,
        execution=execution,
    )


def _describe_failure(execution: Execution) -> str:
    error = execution.error
    if error is None:
        return f"{execution.phase} {execution.reason}".rstrip()
    line = f" (line {error.line})" if error.line else ""
    return f"{error.summary}{line}"
