"""How many files this process may have open: each connection to a caller, a pod or a server is one."""

import resource
from typing import Final

_MOST: Final = 2**20
"""Enough for everything that is bounded elsewhere; what the kernel sets aside for each stays small."""


def raise_file_limit(most: int = _MOST) -> None:
    """Raises the soft limit of open files to the hard one, or to `most`; it is never lowered.

    containerd 2 starts containers with the kernel's soft limit of 1024, which is for programs that use select(2);
    Go's runtime does the same (https://github.com/golang/go/issues/46279).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
