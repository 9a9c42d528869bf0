"""Reports of a task's usage to the gateway."""

import asyncio
import logging
import uuid
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.wire.records import NewUsageReport
from mcp_exec_client.agent.rollout import RolloutUnit
from mcp_exec_client.agent.trace import RunTrace
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError

log = logging.getLogger(__name__)

_MAX_MODEL: Final = 128
_SECONDS: Final = 10.0
"""Longest time of a report, which the answer waits for."""


async def report_task(
    client: AsyncClient,
    conversation: str,
    trace: RunTrace,
    *,
    user: str | None,
    use_case: str | None,
    rollout: RolloutUnit | None,
) -> None:
    """Report what a task used. The answer does not depend on it: a report that is not accepted is logged."""
    try:
        usage = NewUsageReport(
            id=uuid.uuid4().hex,
            model=trace.model[:_MAX_MODEL],
            mode=trace.mode,
            turns=trace.turns,
            input_tokens=trace.tokens.input,
            output_tokens=trace.tokens.output,
            cache_read_tokens=trace.tokens.cache_read,
            cache_write_tokens=trace.tokens.cache_write,
            definition_tokens=trace.definition_tokens,
            counted=trace.tokens.counted,
            success=trace.succeeded,
            latency_ms=round(trace.milliseconds),
            user=user,
            use_case=use_case,
            rollout=rollout.rollout if rollout else None,
            unit=rollout.unit if rollout else None,
        )
        async with asyncio.timeout(_SECONDS):
            await client.conversations.report_usage(conversation, usage)
    except (McpExecError, TimeoutError, ValidationError) as error:
        log.warning("the usage of conversation %s was not reported: %s", conversation, error)
