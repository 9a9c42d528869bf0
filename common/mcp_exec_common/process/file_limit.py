"""Limit of open files of this process: each connection to a caller, a pod or a server is one."""

import resource
from typing import Final

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
