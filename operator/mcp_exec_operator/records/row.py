"""The record of a finished execution, from its object."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from mcp_exec_api.constants import LABEL_CONVERSATION, LABEL_USE_CASE
from mcp_exec_api.execution_state import read_created_at
from mcp_exec_common.kube.objects import Object

CodePolicy = Literal["Never", "Digest", "Full"]
"""What a record keeps of the code: nothing, its digest, or all of it with the digest."""
_UNSTORABLE: Final = {0: "\ufffd"} | dict.fromkeys(range(55296, 57344), "�")


def build_row(execution: Object, *, caller: str, code: CodePolicy) -> dict[str, object]:
    """Return the row of a finished execution; `caller` is who created it, as its proof says."""
    metadata, spec, status = execution["metadata"], execution.get("spec") or {}, execution.get("status") or {}
    labels, durations = metadata.get("labels") or {}, status.get("durations") or {}
    usage, calls = status.get("usage") or {}, status.get("toolCalls") or {}
    row: dict[str, object] = {
        "uid": metadata["uid"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "caller": caller or None,
        "user": spec.get("user"),
        "conversation": labels.get(LABEL_CONVERSATION),
        "use_case": labels.get(LABEL_USE_CASE),
        "mode": "code",
        "pool": (spec.get("poolRef") or {}).get("name") or "default",
        "session": spec.get("session"),
        "phase": status.get("phase"),
        "reason": status.get("reason") or None,
        "created_at": _read_time(read_created_at(execution)),
        "started_at": _read_time(status.get("startedAt")),
        "finished_at": _read_time(status.get("finishedAt")),
        "duration_ms": _round(durations.get("total")),
        "queue_ms": _round(durations.get("queued")),
        "warm": status["start"] != "Cold" if status.get("start") else None,
        "cpu_seconds": usage.get("cpuSeconds"),
        "peak_memory_bytes": usage.get("peakMemoryBytes"),
        "sandbox_seconds": usage.get("sandboxSeconds"),
        "tool_calls": calls.get("total"),
        "failed_calls": calls.get("failed"),
    }
    return {name: _bound(value) for name, value in row.items()} | _describe_code(spec, status, code)


def _describe_code(spec: Mapping[str, Any], status: Mapping[str, Any], policy: CodePolicy) -> dict[str, object]:
    """Return the columns of the code and of its estimated tokens."""
    code = str(spec.get("code") or "")
    encoded = code.encode("utf-8", "replace")
    tokens = (status.get("usage") or {}).get("tokens") or {}
    return {
        "code_bytes": len(encoded),
        "code_digest": None if policy == "Never" else "sha256:" + hashlib.sha256(encoded).hexdigest(),
        "code": code.translate(_UNSTORABLE) if policy == "Full" else None,
        "tokens_code": tokens.get("code"),
        "tokens_returned": tokens.get("returned"),
        "tokens_kept": tokens.get("kept"),
        "tokens_method": tokens.get("method"),
    }


def _read_time(text: object) -> int | None:
    """Return microseconds since 1970."""
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1_000_000) if text else None
    except (ValueError, OverflowError):
        return None


def _round(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds)


def _bound(value: object) -> object:
    """Return a value that a database can store: only labels and fields with other limits are longer."""
    return value.translate(_UNSTORABLE)[:253] if isinstance(value, str) else value
