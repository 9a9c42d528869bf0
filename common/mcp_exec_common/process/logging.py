"""Logging as JSON lines on standard error, one object per record."""

import json
import logging
import sys
from typing import Final

from mcp_exec_api.meta import micro_time, now

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "settings",
    "k8s_ref",
    "k8s_skip",
}


class JsonFormatter(logging.Formatter):
    """Formatter of a record as one line of JSON. Each key of `extra` becomes a field."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        fields = {
            "at": micro_time(now()),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in record.__dict__.items() if name not in _STANDARD},
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def configure_logging(level: str) -> None:
    """Send all records of the process from `level` upwards to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
