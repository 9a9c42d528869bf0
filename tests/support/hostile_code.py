"""Hostile and careless code in each language, in one table, and what code of each language leaves behind.

A row is one thing that code tries, written in each language, and how such a run ends. A language is added by a column.
What no other language can try is in Python's own files: test_python_system_calls.py and test_limits.py of
tests/component/sandbox, and tests/support/leftovers.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.support.channel_code import (
    END,
    FORGED_REPORTS,
    FORGED_VALUES,
    WAIT,
    build_done,
    forge_after_interruption,
    write_to_channel,
)

MIB: Final = 1024 * 1024
SMALL_MEMORY: Final = {"memory_bytes": str(192 * MIB)}
SMALL_STORAGE: Final = {"storage_bytes": str(4 * MIB)}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sort of code, in each language, and how its run ends."""

    python: str
    typescript: str
    phase: str = "Failed"
    """`*` if it depends on the machine."""
    reasons: tuple[str, ...] = ("",)
    message: str = ""
    """Part of the error's message."""
    stdout: str | None = None
    """The whole output; None if it does not matter."""
    results: tuple[object, ...] = ()
    """Results of which the run has one; none if it does not matter."""
    seconds: float = 15
    """Time limit of the run."""
    settings: Mapping[str, str] = field(default_factory=dict)


MEMORY: Final = {
    "memory of objects without end": Row(
        python="rows = []\nwhile True:\n    rows.append('x' * 1_000_000)\n",
        typescript="const rows: unknown[] = [];\n"
        "while (true) rows.push({ row: rows.length, text: 'x'.repeat(100) + rows.length });",
        reasons=("OutOfMemory",),
        message="192 MiB",
        seconds=60,
        settings=SMALL_MEMORY,
    ),
    "memory of bytes without end": Row(
        python="blocks = []\nwhile True:\n    blocks.append(bytearray(b'x') * (1 << 20))\n",
        typescript="const blocks: Uint8Array[] = [];\nwhile (true) blocks.push(new Uint8Array(1 << 20).fill(1));",
        reasons=("OutOfMemory",),
        message="192 MiB",
        seconds=60,
        settings=SMALL_MEMORY,
    ),
    "memory of a thread without end": Row(
        python="from concurrent.futures import ThreadPoolExecutor\ndef grow():\n    rows = []\n    while True:\n"
        "        rows.append('x' * 1_000_000)\nThreadPoolExecutor(1).submit(grow).result()",
        typescript="const code = 'const rows = []; while (true) rows.push(new Uint8Array(1 << 20).fill(1))';\n"
        "new Worker(`data:text/javascript,${encodeURIComponent(code)}`, { type: 'module' });\n"
        "await new Promise(() => {});",
        reasons=("OutOfMemory", "UserError"),
        seconds=60,
        settings=SMALL_MEMORY,
    ),
    "memory that the code does without": Row(
        python="try:\n    bytearray(1 << 40)\nexcept MemoryError:\n    print('handled')\n",
        typescript="try { new ArrayBuffer(2 ** 45) } catch { console.log('handled') }",
        phase="Succeeded",
        stdout="handled\n",
    ),
}
PROCESSES: Final = {
    "threads without end": Row(
        python="import threading\nwhile True:\n    threading.Thread(target=threading.Event().wait).start()\n",
        typescript="const code = new Blob(['setInterval(() => {}, 1000)'], { type: 'text/javascript' });\n"
        "const url = URL.createObjectURL(code);\n"
        "for (;;) { new Worker(url, { type: 'module' }); await new Promise((go) => setTimeout(go, 1)) }",
        # on a busy machine, Deno may fail to start a thread before the supervisor has counted them
        reasons=("ProcessLimit", "OutOfMemory", "RunnerDied"),
        seconds=60,
    ),
    "processes without end": Row(
        python="import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
        typescript="import { execSync } from 'node:child_process';\nfor (;;) execSync('sleep 60 &');",
        reasons=("ProcessLimit", "UserError"),
        seconds=60,
    ),
    "a kill of itself": Row(
        python="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        typescript="Deno.kill(Deno.pid, 'SIGKILL');\nawait new Promise(() => {});",
        reasons=("RunnerDied", "OutOfMemory"),
    ),
}
OUTPUT: Final = {
    "output without end": Row(
        python="line = 'y' * 100_000\nwhile True:\n    print(line)\n",
        typescript="const line = 'y'.repeat(100_000);\nwhile (true) console.log(line);",
        reasons=("OutputLimit",),
        message="128 MiB",
        seconds=60,
    ),
    "output of bytes that are no text": Row(
        python="import os\nwhile True:\n    os.write(1, b'\\xff' * 65536)\n",
        typescript="const bytes = new Uint8Array(65536).fill(255);\nwhile (true) Deno.stdout.writeSync(bytes);",
        reasons=("OutputLimit",),
        seconds=60,
    ),
    "output byte by byte": Row(
        python="import os\nfor _ in range(20_000):\n    os.write(1, b'x')\n",
        typescript="const one = new Uint8Array([120]);\nfor (let n = 0; n < 20_000; n++) Deno.stdout.writeSync(one);",
        phase="Succeeded",
        stdout="x" * 20_000,
    ),
    "errors without end": Row(
        python="import sys\nline = 'y' * 100_000\nwhile True:\n    print(line, file=sys.stderr)\n",
        typescript="const line = 'y'.repeat(100_000);\nwhile (true) console.error(line);",
        reasons=("OutputLimit",),
        seconds=60,
    ),
    "an enormous error": Row(
        python="raise ValueError('m' * 10_000_000)",
        typescript="throw new Error('m'.repeat(10_000_000))",
        reasons=("UserError",),
    ),
}
STORAGE: Final = {
    "one file without end": Row(
        python="with open('big', 'wb') as file:\n    while True:\n        file.write(bytes(100_000))\n",
        typescript="const file = Deno.openSync('big', { create: true, write: true });\n"
        "while (true) file.writeSync(new Uint8Array(100_000));",
        reasons=("StorageLimit",),
        settings=SMALL_STORAGE,
    ),
    "files without end": Row(
        python="import itertools, os\nfor number in itertools.count():\n"
        "    with open(f'file-{number}', 'wb') as file:\n        file.write(os.urandom(1 << 20))\n",
        typescript="for (let number = 0; ; number++) Deno.writeFileSync(`file-${number}`, new Uint8Array(1 << 20));",
        reasons=("StorageLimit",),
        settings=SMALL_STORAGE,
    ),
    "deleted files that are open": Row(
        python="import os, threading\nfiles = []\nfor number in range(8):\n    files.append(open('hidden', 'wb'))\n"
        "    os.unlink('hidden')\n    files[-1].write(os.urandom(1 << 20))\n    files[-1].flush()\n"
        "threading.Event().wait()",
        typescript="const files: Deno.FsFile[] = [];\nfor (let number = 0; number < 8; number++) {\n"
        "  files.push(Deno.openSync('hidden', { create: true, write: true }));\n  Deno.removeSync('hidden');\n"
        "  files[number].writeSync(new Uint8Array(1 << 20).fill(1));\n}\nawait new Promise(() => {});",
        reasons=("StorageLimit",),
        message="4 MiB",
        settings=SMALL_STORAGE,
    ),
}
TIME: Final = {
    "a loop without end": Row(
        python="while True:\n    pass\n",
        typescript="while (true) {}",
        phase="TimedOut",
        reasons=("Timeout",),
        seconds=0.3,
    ),
    "a wait without end": Row(
        python="import threading\nthreading.Event().wait()\n",
        typescript="await new Promise(() => {});",
        phase="TimedOut",
        reasons=("Timeout",),
        seconds=0.3,
    ),
    "a loop that ignores its interruption": Row(
        python="while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass\n",
        typescript="process.on('SIGINT', () => {});\nprocess.on('SIGTERM', () => {});\nwhile (true) {}",
        phase="TimedOut",
        reasons=("Timeout",),
        seconds=0.3,
    ),
    "a cleanup without end": Row(
        python="try:\n    while True: pass\nfinally:\n    while True: pass\n",
        typescript="process.on('SIGINT', () => { while (true) {} });\nawait new Promise(() => {});",
        phase="TimedOut",
        reasons=("Timeout",),
        seconds=0.3,
    ),
    "a calm end after the interruption": Row(
        python="import threading\ntry:\n    threading.Event().wait()\nexcept BaseException:\n    pass\n'calm'",
        typescript="try { await new Promise(() => {}) } catch { /* goes on */ }\n'calm'",
        phase="TimedOut",
        reasons=("Timeout",),
        results=(None,),
        seconds=0.3,
    ),
    "a text form without end": Row(
        python="class Bad:\n    def __repr__(self):\n        while True: pass\nBad()\n",
        typescript="({ toJSON() { while (true) {} } })",
        phase="TimedOut",
        reasons=("Timeout",),
        seconds=0.3,
    ),
}
CHANNEL: Final = {
    "garbage on the control channel": Row(
        **write_to_channel(
            *((b"\n\n", 1), (b"{", 1), (b"[1]\n", 1), (b"\xff\xfe\n", 1), (b"null\n", 1), (b'{"type": []}\n', 1)),
            (b"[" * 100_000 + b"\n", 1),
            then=END,
        ),
        phase="Succeeded",
        results=("fine",),
    ),
    "a line without end on the control channel": Row(
        **write_to_channel((b"x", 50_000_000), then=END),
        phase="Succeeded",
        results=("fine",),
    ),
    "a forged end": Row(
        **write_to_channel((build_done(hasValue=True, value=5), 1), then=WAIT),
        phase="Succeeded",
        results=(5,),
    ),
    "a forged end after the interruption": Row(
        **forge_after_interruption(build_done(hasValue=True, value=5)),
        phase="TimedOut",
        reasons=("Timeout",),
        results=(None,),
        seconds=0.3,
        settings={"grace_milliseconds": "5000"},
    ),
    **{
        f"a forged report with wrong {name}": Row(
            **write_to_channel((report, 1), then=WAIT), phase="*", reasons=("", "UserError", "ExitCode")
        )
        for name, report in FORGED_REPORTS.items()
    },
    **{
        f"a forged report of {name}": Row(  # what the supervisor can't read is ignored
            **write_to_channel((b'{"type": "done", "hasValue": true, "value": ' + value + b"}\n", 1), then=WAIT),
            phase="*",
            reasons=("", "Timeout"),
            seconds=1,
        )
        for name, value in FORGED_VALUES.items()
    },
    "a forged report over its own output": Row(
        python='import sys\nprint(\'{"type": "done", "hasValue": true, "value": 666}\')\n\'real\'',
        typescript='console.log(\'{"type": "done", "hasValue": true, "value": 666}\');\n\'real\'',
        phase="Succeeded",
    ),
    "what the report is made of, replaced": Row(
        python="import json, builtins\njson.dumps = lambda *_: 'x'\njson.JSONEncoder = None\nstr = None\n'real'",
        typescript="JSON.stringify = () => 'x';\nArray.prototype.map = () => [];\n"
        "Promise.prototype.then = (() => {}) as any;\n'real'",
        phase="*",
        reasons=("", "UserError", "Timeout", "RunnerDied"),
        seconds=1,
    ),
}
ESCAPE: Final = {
    "a signal to the supervisor": Row(
        python="import os\ntry:\n    os.kill(os.getppid(), 9)\nexcept PermissionError:\n    'refused'\n",
        typescript="try { process.kill(process.ppid, 'SIGKILL') } catch { 'refused' }\n1",
        phase="Succeeded",
    ),
    "the supervisor's places in memory": Row(
        python="import os\nopen(f'/proc/{os.getppid()}/maps', 'rb').read(1)",
        typescript="Deno.readFileSync(`/proc/${Deno.ppid}/maps`)",
        reasons=("UserError",),
    ),
    "a file outside of its folders": Row(
        python="open('/etc/left', 'w')",
        typescript="Deno.writeTextFileSync('/etc/left', '')",
        reasons=("UserError",),
    ),
    "the supervisor's environment": Row(
        python="import os\nopen(f'/proc/{os.getppid()}/environ', 'rb').read()",
        typescript="Deno.readFileSync(`/proc/${Deno.ppid}/environ`)",
        reasons=("UserError",),
    ),
    "the supervisor's memory": Row(
        python="import os\nopen(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
        typescript="Deno.openSync(`/proc/${Deno.ppid}/mem`)",
        reasons=("UserError",),
    ),
}
VALUES: Final = {
    "a recursion without end": Row(
        python="def f(n):\n    return f(n + 1)\nf(0)",
        typescript="function f(n: number): number {\n  return f(n + 1) + 1;\n}\nf(0)",
        reasons=("UserError",),
    ),
    "brackets without end": Row(
        python="[" * 100_000 + "]" * 100_000,
        typescript="[" * 100_000 + "]" * 100_000,
        reasons=("UserError", "OutOfMemory", "RunnerDied"),
    ),
    "a deep structure": Row(
        python="value = []\nfor _ in range(10_000):\n    value = [value]\nvalue",
        typescript="let value: unknown[] = [];\nfor (let n = 0; n < 10_000; n++) value = [value];\nvalue",
        phase="Succeeded",
    ),
    "a structure that contains itself": Row(
        python="value = {}\nvalue['self'] = value\nvalue",
        typescript="const value: Record<string, unknown> = {};\nvalue.self = value;\nvalue",
        phase="Succeeded",
    ),
    "an iterator without end": Row(
        python="import itertools\nitertools.count()",
        typescript="(function* () { for (let n = 0; ; n++) yield n })()",
        phase="Succeeded",
    ),
    "lone surrogates": Row(
        python="print('\\ud800')\n{'a': '\\ud800'}",
        typescript="console.log('\\ud800');\n({ a: '\\ud800' })",
        phase="Succeeded",
        results=({"a": "\\ud800"},),
    ),
    "an exit": Row(
        python="import sys\nsys.exit(3)",
        typescript="process.exit(3)",
        reasons=("ExitCode",),
    ),
    "an error whose text fails": Row(
        python="class Bad(Exception):\n    def __str__(self):\n        raise ValueError\nraise Bad",
        typescript="class Bad extends Error {\n  get message(): string { throw new Error() }\n"
        "  get name(): string { throw 1 }\n}\nthrow new Bad()",
        reasons=("UserError",),
    ),
}
ROWS: Final = MEMORY | PROCESSES | OUTPUT | STORAGE | TIME | CHANNEL | ESCAPE | VALUES

LEAVE: Final = {
    "python": """
import builtins, os, subprocess, tempfile, threading
open("kept", "w").write("x")
tempfile.mkdtemp()
os.makedirs(".hidden/a/b")
threading.Thread(target=threading.Event().wait, daemon=True).start()
subprocess.Popen(["sleep", "600"])
os.environ["LEFT"] = "left"
globals()["left"] = builtins.left = 1
""",
    "typescript": """
Deno.writeTextFileSync("kept", "x");
Deno.makeTempDirSync();
Deno.mkdirSync(".hidden/a/b", { recursive: true });
const worker = URL.createObjectURL(new Blob(["setInterval(() => {}, 10)"], { type: "text/javascript" }));
new Worker(worker, { type: "module" });
Deno.listen({ hostname: "127.0.0.1", port: context.port });
setInterval(() => Deno.writeTextFileSync("later", "x"), 1);
for (const name of ["SIGUSR2", "exit", "left"]) process.on(name, () => {});
addEventListener("left", () => Reflect.set(globalThis, "received", 1));
Deno.env.set("LEFT", "left");
Reflect.set(globalThis, "left", 1);
Reflect.set(Array.prototype, "left", 1);
await new Promise((go) => setTimeout(go, 20));
process.exit(0);
""",
}
"""Leaves files, timers, threads, listeners, variables and settings in each language. The context has a free `port`."""
LOOK: Final = {
    "python": """
import os, tempfile
files = sorted({*os.listdir()} - {".mcp-exec"})
[files, os.listdir(tempfile.gettempdir()), "left" in dir(__builtins__), "LEFT" in os.environ]
""",
    "typescript": """
const list = (folder: string) =>
  [...Deno.readDirSync(folder)].map((entry) => entry.name).filter((name) => name !== ".mcp-exec").sort();
dispatchEvent(new Event("left"));
await new Promise((go) => setTimeout(go, 50));
const port = await Deno.connect({ hostname: "127.0.0.1", port: context.port }).then(() => "open", () => "closed");
({
  files: [list("."), list(Deno.env.get("TMPDIR")!)],
  listeners: Object.fromEntries(["SIGUSR2", "exit", "left"].map((name) => [name, process.listenerCount(name)])),
  variables: [Reflect.has(globalThis, "left"), Reflect.has(globalThis, "received"), Reflect.has([], "left")],
  setting: Deno.env.get("LEFT") ?? null,
  port,
})
""",
}
"""Returns in each language what there is of all that; what it returned before must be what it returns later. The
supervisor's folder of wrappers does not count: it goes a moment after the beginning of a run that may not use them."""
