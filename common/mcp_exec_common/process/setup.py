"""What every process sets up when it starts: logging as JSON lines, the limit of open files, garbage collection."""

import gc
import json
import logging
import resource
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


_MAX_FILES: Final = 2**20
"""More than all other limits together allow. The kernel reserves only a few bytes for each possible file."""


def raise_file_limit(max_files: int = _MAX_FILES) -> None:
    """Raise the soft limit of open files to the hard limit, or to `max_files` if that is lower. Never lower it.

    containerd 2 starts containers with the kernel's soft limit of 1024, which exists for programs that use select(2).
    Go's runtime raises it in the same way (https://github.com/golang/go/issues/46279).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_files if hard == resource.RLIM_INFINITY else min(hard, max_files)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def exempt_started_objects() -> None:
    """Exempt all objects that exist now from garbage collection. Call it once, when the process has started.

    A full collection stops the process while it looks at each object: a tenth of a second for the modules, types and
    schemas of a process alone, which never become garbage.
    """
    gc.collect()
    gc.freeze()
