"""Tables of the records, and their columns that are not texts: Parquet needs types before it has values."""

from typing import Final

TABLES: Final = ("executions", "calls", "model_usage", "feedback", "exposures", "outcomes")
INTEGERS: Final = frozenset(
    {
        *("created_at", "started_at", "finished_at", "stored_at", "at", "duration_ms", "queue_ms", "latency_ms"),
        *("peak_memory_bytes", "code_bytes", "argument_bytes", "result_bytes"),
        *("tokens_code", "tokens_returned", "tokens_kept", "result_tokens", "tokens", "definition_tokens"),
        *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
        *("tool_calls", "failed_calls", "calls", "turns", "rating"),
    }
)
REALS: Final = frozenset({"cpu_seconds", "sandbox_seconds", "cost"})
FLAGS: Final = frozenset({"warm", "success"})
