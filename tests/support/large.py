"""Executions of maximal size, and processes with little memory.

The API server keeps marks in place of code, context and output, and replaces them when it sends an object, so that
thousands of objects take no memory in the test.
"""

from pathlib import Path
from typing import Any, Final

from mcp_exec_api.constants import EXECUTIONS, LABEL_CALLER
from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import custom_resource_path
from tests.support.api_server import FakeApiServer
from tests.support.processes import Process

Object = dict[str, Any]
CEX: Final = custom_resource_path(EXECUTIONS, namespace="agents")
MEMORY_MIB: Final = 512
"""Memory limit of operator and gateway in the chart."""
_PARTS: Final = {
    b'"@code@"': b'"print %s"' % (b"x" * (256 * 1024 - 8)),
    b'"@context@"': b'"%s"' % (b"c" * (250 * 1024)),
    # takes more than 20 times its size in memory
    b'"@lists@"': b"[%s[]]" % (b"[]," * (60 * 1024)),
    b'"@output@"': b'"%s"' % (b"o" * (256 * 1024)),
}
WITHIN: Final = f"""
import resource
resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY_MIB} * 2**20,) * 2)
"""
"""Begin of a program with that memory. It fails with MemoryError instead of taking the machine's."""


def raised_bounds() -> dict[str, str]:
    """Return the environment of a process that may keep thousands of executions of maximal size."""
    return {"MCP_EXEC_MAX_STORED": "10000", "MCP_EXEC_MAX_STORED_BYTES": str(16 * 2**30)}


class LargeObjects(FakeApiServer):
    """An API server whose executions are as large as they can be."""

    sent_bytes = 0
    """Bytes of objects that were sent."""

    def encode(self, item: Object) -> bytes:
        encoded = super().encode(item)
        for mark, part in _PARTS.items():
            if mark in encoded:
                encoded = encoded.replace(mark, part)
        self.sent_bytes += len(encoded)
        return encoded

    def list_new(self, count: int) -> list[str]:
        """Return the names of the executions that were created since, once there are so many."""
        names = [seen.body["metadata"]["name"] for seen in self.asked("POST", "/codeexecutions")]
        return names if len(names) >= count else []

    def add_large(self, name: str, *, context: str = "@context@", **fields: Any) -> None:
        """Add an execution that was there before the test."""
        self.version += 1
        metadata = {
            "name": name,
            "namespace": "agents",
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": str(self.version),
            "creationTimestamp": micro_time(now())[:19] + "Z",
            "labels": {LABEL_CALLER: "team-a"},
        }
        self.collections.setdefault(CEX, {})[name] = {
            "metadata": metadata,
            "spec": large_spec(context=context) | fields.pop("spec", {}),
            **fields,
        }


def large_spec(*, context: str = "@context@") -> Object:
    return {
        "code": "@code@",
        "context": {"data": context},
        "poolRef": {"name": "default"},
        "timeoutSeconds": 30,
        "limits": {"outputBytes": 262144},
        "ttlSecondsAfterFinished": 86400,
        "cancelRequested": False,
    }


def large_output() -> Object:
    return {"stdout": "@output@", "stderr": "@output@", "result": "@output@", "truncated": False}


def finished() -> Object:
    at = micro_time(now())
    return {"phase": "Succeeded", "createdAt": at, "finishedAt": at, "podName": "p", "output": large_output()}


def peak_mib(process: Process) -> float:
    """Return the most memory that a process had so far."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
