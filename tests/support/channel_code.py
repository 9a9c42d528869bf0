"""Code of each language that writes to the control channel between its runner and the supervisor."""

import base64
import json
from collections.abc import Mapping
from typing import Final

OPEN_IN_PYTHON: Final = "import base64, os, signal, socket\nchannel = socket.socket(fileno=os.dup(3))\n"
OPEN_IN_WORKER: Final = """
import { Buffer } from "node:buffer";
import net from "node:net";
const channel = new net.Socket({ fd: 3, readable: false, writable: true });
channel.on("error", () => {});
const repeat = (text, count) => {
  const unit = Buffer.from(text, "base64");
  return Buffer.alloc(unit.length * count, unit);
};
"""
END: Final = {"python": "'fine'", "typescript": "worker.terminate();\n'fine'"}
WAIT: Final = {"python": "signal.pause()", "typescript": "await new Promise(() => {});"}
FLOODS: Final = {
    "empty lines": (b"\n", 65536),
    "short objects": (b'{"type":1}\n', 20_000),
    "deep lists": (b"[" * 200_000 + b"\n", 1),
    "tool events that claim output": (
        b'{"type":"tool_call","id":"","tool":"","written":[999999999,9]}\n',
        1000,
    ),
    "one line": (b"x", 65536),
}
"""Units that flood the control channel, and how often each is repeated in one write."""


def build_done(**fields: object) -> bytes:
    """Return a report of the end of a run."""
    return json.dumps({"type": "done", **fields}).encode() + b"\n"


FORGED_REPORTS: Final = {
    "types": build_done(error="text", exitCode="x", limit=5, peakMemoryBytes=-1),
    "fields of the error": build_done(error={"type": 5, "message": ["x"], "line": -3, "traceback": None}),
    "long texts": build_done(error={"type": "T" * 5000, "message": "m" * 50000, "traceback": "t" * 50000}),
    "a large exit code": build_done(exitCode=10**400, limit="unknown"),
}
FORGED_VALUES: Final = {
    "nested lists": b"[" * 983 + b"]" * 983,
    "nested objects": b'{"a":' * 983 + b"1" + b"}" * 983,
    "an infinite number": b"1e999",
    "a lone surrogate": b'"\\ud800"',
    "a long number": b"9" * 4000,
    "no number": b"NaN",
}


def write_to_channel(*parts: tuple[bytes, int], then: Mapping[str, str]) -> dict[str, str]:
    """Return code of each language that writes repeated bytes to the control channel, and goes on with `then`.

    The channel is a file of Python's interpreter. Deno only lets the runner and the Workers of the code open it.
    """
    encoded = json.dumps([(base64.b64encode(unit).decode(), count) for unit, count in parts])
    return {
        "python": OPEN_IN_PYTHON + f"for text, count in {encoded}:\n"
        f"    channel.sendall(base64.b64decode(text) * count)\n{then['python']}",
        "typescript": work_in_typescript(
            OPEN_IN_WORKER + f"for (const [text, count] of {encoded}) channel.write(repeat(text, count));\n"
            "channel.write('', () => postMessage('written'));"
        )
        + f"await new Promise((go) => worker.onmessage = go);\n{then['typescript']}",
    }


def flood_channel(unit: bytes, count: int) -> dict[str, str]:
    """Return code of each language that floods the channel twice, and its output, while it ignores its interruption."""
    text = base64.b64encode(unit).decode()
    write = f"const data = repeat('{text}', {count});\nconst write = () => channel.write(data, write);\nwrite();"
    return {
        "python": OPEN_IN_PYTHON + "channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)\n"
        f"data = base64.b64decode('{text}') * {count}\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n    while True: os.write(1, b'\\xff' * 65536)\n"
        "os.fork()\n"
        "while True: channel.sendall(data)\n",
        "typescript": work_in_typescript("while (true) Deno.stdout.writeSync(new Uint8Array(65536).fill(255));")
        + f"{{ {work_in_typescript(OPEN_IN_WORKER + write)} }}\n" * 2
        + "process.on('SIGINT', () => {});\nwhile (true) {}",
    }


def forge_after_interruption(report: bytes) -> dict[str, str]:
    """Return code of each language that writes a report once its time is over."""
    text = base64.b64encode(report).decode()
    return {
        "python": OPEN_IN_PYTHON + "try:\n    while True: pass\nexcept BaseException:\n"
        f"    channel.sendall(base64.b64decode('{text}'))\n    signal.pause()\n",
        "typescript": work_in_typescript(
            OPEN_IN_WORKER + f"setTimeout(() => channel.write(repeat('{text}', 1)), 1500);"
        )
        + "while (true) {}",
    }


def work_in_typescript(source: str) -> str:
    """Return code that runs JavaScript in a Worker."""
    return (
        f"const worker = new Worker(`data:text/javascript,${{encodeURIComponent({json.dumps(source)})}}`, "
        "{ type: 'module' });\n"
    )
