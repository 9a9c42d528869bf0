"""Memory of processes from /proc, and of a Go process after a garbage collection.

Resident memory of a Go process is up to twice its live heap, depending on when it last collected garbage, and that of
etcd has the pages of its mapped database file, which the kernel may take back at any time.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

MB: Final = 1e6
PROFILE: Final = "/debug/pprof/heap"
"""Path of a Go process's heap profile. With COLLECT, a garbage collection runs first."""
COLLECT: Final = {"gc": "1"}
METRICS: Final = "/metrics"
_LIVE: Final = re.compile(r"^go_memstats_heap_alloc_bytes (\S+)$", re.MULTILINE)
_FIELD: Final = re.compile(r"^(VmRSS|RssAnon):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """Memory of a process in MB (10^6 bytes)."""

    resident: float
    anonymous: float
    """Part of the resident memory that is not of files."""

    @classmethod
    def read(cls, pid: int) -> Self:
        """Read the memory of a process. Raises OSError if there is none with this pid."""
        found = dict(_FIELD.findall(Path(f"/proc/{pid}/status").read_text()))
        resident, anonymous = (round(int(found[name]) * 1024 / MB, 1) for name in ("VmRSS", "RssAnon"))
        return cls(resident=resident, anonymous=anonymous)


def read_heap(metrics: str) -> float:
    """Return the MB of a Go process's heap from its metrics. Raises ValueError if they do not have it."""
    if (found := _LIVE.search(metrics)) is None:
        raise ValueError("the metrics have no go_memstats_heap_alloc_bytes")
    return round(float(found[1]) / MB, 1)
