"""Logs as JSON lines on standard error, one object a record."""

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
    """A record as one line of JSON; what a call gave as `extra` becomes fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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
    """Sends the whole process's records from `level` on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
