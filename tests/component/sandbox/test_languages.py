"""Hostile and careless code in each language, from one table: every run ends once, in time, with the same reason.

A language is added by a column. What a language can't even try (Deno refuses programs) is a row of its own module.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.component.sandbox.conftest import Run, SandboxProcess
from tests.support.pace import paced

from mcp_exec_sandbox.protocol import LANGUAGES

MIB = 1024 * 1024
SLACK_SECONDS = paced(10)
"""The grace of the supervisor, and time for a busy machine."""
OWNER = "0" * 32


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sort of code, in each language, and how its run ends."""

    python: str
    typescript: str
    phase: str = "Failed"
    reasons: tuple[str, ...]
    message: str = ""
    seconds: float = 15
    settings: dict[str, str] = field(default_factory=dict)


ROWS = {
    "memory of objects without end": Row(
        python="rows = []\nwhile True:\n    rows.append('x' * 1_000_000)\n",
        typescript="const rows: unknown[] = [];\n"
        "while (true) rows.push({ row: rows.length, text: 'x'.repeat(100) + rows.length });",
        reasons=("OutOfMemory",),
        message="192 MiB",
        seconds=60,
        settings={"memory_bytes": str(192 * MIB)},
    ),
    "memory of bytes without end": Row(
        python="blocks = []\nwhile True:\n    blocks.append(bytearray(b'x') * (1 << 20))\n",
        typescript="const blocks: Uint8Array[] = [];\nwhile (true) blocks.push(new Uint8Array(1 << 20).fill(1));",
        reasons=("OutOfMemory",),
        message="192 MiB",
        seconds=60,
        settings={"memory_bytes": str(192 * MIB)},
    ),
    "threads without end": Row(
        python="import threading\nwhile True:\n    threading.Thread(target=threading.Event().wait).start()\n",
        typescript="const code = new Blob(['setInterval(() => {}, 1000)'], { type: 'text/javascript' });\n"
        "const url = URL.createObjectURL(code);\n"
        "for (;;) { new Worker(url, { type: 'module' }); await new Promise((go) => setTimeout(go, 1)) }",
        reasons=("ProcessLimit", "OutOfMemory"),
        seconds=60,
    ),
    "output without end": Row(
        python="line = 'y' * 100_000\nwhile True:\n    print(line)\n",
        typescript="const line = 'y'.repeat(100_000);\nwhile (true) console.log(line);",
        reasons=("OutputLimit",),
        message="128 MiB",
        seconds=60,
    ),
    "errors without end": Row(
        python="import sys\nline = 'y' * 100_000\nwhile True:\n    print(line, file=sys.stderr)\n",
        typescript="const line = 'y'.repeat(100_000);\nwhile (true) console.error(line);",
        reasons=("OutputLimit",),
        seconds=60,
    ),
    "one file without end": Row(
        python="with open('big', 'wb') as file:\n    while True:\n        file.write(bytes(100_000))\n",
        typescript="const file = Deno.openSync('big', { create: true, write: true });\n"
        "while (true) file.writeSync(new Uint8Array(100_000));",
        reasons=("StorageLimit",),
        settings={"storage_bytes": str(4 * MIB)},
    ),
    "files without end": Row(
        python="import itertools, os\nfor number in itertools.count():\n"
        "    with open(f'file-{number}', 'wb') as file:\n        file.write(os.urandom(1 << 20))\n",
        typescript="for (let number = 0; ; number++) Deno.writeFileSync(`file-${number}`, new Uint8Array(1 << 20));",
        reasons=("StorageLimit",),
        settings={"storage_bytes": str(4 * MIB)},
    ),
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
    "a text form without end": Row(
        python="class Bad:\n    def __repr__(self):\n        while True: pass\nBad()\n",
        typescript="({ toJSON() { while (true) {} } })",
        phase="TimedOut",
        reasons=("Timeout",),
        seconds=0.3,
    ),
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
        reasons=("",),
    ),
    "a structure that contains itself": Row(
        python="value = {}\nvalue['self'] = value\nvalue",
        typescript="const value: Record<string, unknown> = {};\nvalue.self = value;\nvalue",
        phase="Succeeded",
        reasons=("",),
    ),
    "an iterator without end": Row(
        python="import itertools\nitertools.count()",
        typescript="(function* () { for (let n = 0; ; n++) yield n })()",
        phase="Succeeded",
        reasons=("",),
    ),
    "a forged report over its own output": Row(
        python='import sys\nprint(\'{"type": "done", "hasValue": true, "value": 666}\')\n\'real\'',
        typescript='console.log(\'{"type": "done", "hasValue": true, "value": 666}\');\n\'real\'',
        phase="Succeeded",
        reasons=("",),
    ),
    "what the report is made of, replaced": Row(
        python="import json, builtins\njson.dumps = lambda *_: 'x'\njson.JSONEncoder = None\nstr = None\n'real'",
        typescript="JSON.stringify = () => 'x';\nArray.prototype.map = () => [];\n"
        "Promise.prototype.then = (() => {}) as any;\n'real'",
        phase="*",
        reasons=("", "UserError", "Timeout", "RunnerDied"),
        seconds=1,
    ),
    "an exit": Row(
        python="import sys\nsys.exit(3)",
        typescript="process.exit(3)",
        reasons=("ExitCode",),
    ),
    "a kill of itself": Row(
        python="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        typescript="Deno.kill(Deno.pid, 'SIGKILL');\nawait new Promise(() => {});",
        reasons=("RunnerDied", "OutOfMemory"),
    ),
    "a signal to the supervisor": Row(
        python="import os\ntry:\n    os.kill(os.getppid(), 9)\nexcept PermissionError:\n    'refused'\n",
        typescript="try { process.kill(process.ppid, 'SIGKILL') } catch { 'refused' }\n1",
        phase="Succeeded",
        reasons=("",),
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
    "an error whose text fails": Row(
        python="class Bad(Exception):\n    def __str__(self):\n        raise ValueError\nraise Bad",
        typescript="class Bad extends Error {\n  get message(): string { throw new Error() }\n"
        "  get name(): string { throw 1 }\n}\nthrow new Bad()",
        reasons=("UserError",),
    ),
    "an enormous error": Row(
        python="raise ValueError('m' * 10_000_000)",
        typescript="throw new Error('m'.repeat(10_000_000))",
        reasons=("UserError",),
    ),
}


@pytest.fixture(params=ROWS)
def row(request: pytest.FixtureRequest) -> Row:
    return ROWS[request.param]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_run_ends_once_in_time_and_says_why(make_sandbox: Any, row: Row, language: str) -> None:
    sandbox: SandboxProcess = make_sandbox(language=language, **row.settings)
    run: Run = sandbox.run(getattr(row, language), timeoutSeconds=row.seconds)
    assert run.phase == row.phase or row.phase == "*", run.error
    assert run.reason in row.reasons, run.error
    if row.message:
        assert row.message in run.error["message"]
    assert run.end["runMs"] < (row.seconds + SLACK_SECONDS) * 1000
    assert [event["type"] for event in run.events].count("end") == 1
    assert len(str(run.error)) < 30_000
    assert run.result != 666
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


LEAVE = {
    "python": "import os, subprocess, tempfile, threading\nopen('kept', 'w').write('x')\ntempfile.mkdtemp()\n"
    "os.makedirs('.hidden/a/b')\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "subprocess.Popen(['sleep', '600'])\nglobals()['left'] = 1\nimport builtins\nbuiltins.left = 1",
    "typescript": "Deno.writeTextFileSync('kept', 'x');\nDeno.makeTempDirSync();\n"
    "Deno.mkdirSync('.hidden/a/b', { recursive: true });\n"
    "const url = URL.createObjectURL(new Blob(['setInterval(() => {}, 10)'], { type: 'text/javascript' }));\n"
    "new Worker(url, { type: 'module' });\nReflect.set(globalThis, 'left', 1);\nprocess.exit(0)",
}
LOOK = {
    "python": "import os, tempfile\n"
    "[sorted(os.listdir()), os.listdir(tempfile.gettempdir()), 'left' in dir(__builtins__)]",
    "typescript": "const list = (folder: string) => [...Deno.readDirSync(folder)].map((entry) => entry.name).sort();\n"
    "[list('.'), list(Deno.env.get('TMPDIR')!), 'left' in globalThis]",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_that_code_leaves_reaches_the_next_run(make_sandbox: Any, language: str) -> None:
    sandbox: SandboxProcess = make_sandbox(language=language)
    first = sandbox.run(LOOK[language], id="1", owner=OWNER)
    assert first.error is None
    assert sandbox.client.post("/v1/recycle", json={"id": "1"}).json()["state"] == "idle"
    assert sandbox.run(LEAVE[language], id="2", owner=OWNER).phase == "Succeeded"
    answer = sandbox.client.post("/v1/recycle", json={"id": "2"})
    assert (answer.status_code, answer.json()["uses"]) == (200, 2), answer.text
    assert sandbox.run(LOOK[language], id="3", owner=OWNER).result == first.result


SECRETS = {
    "python": "import os\n[name for name in os.environ if name.startswith(('MCP_EXEC_', 'KUBERNETES_'))]",
    "typescript": "Object.keys(Deno.env.toObject()).filter((name) => /^(MCP_EXEC_|KUBERNETES_)/.test(name))",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_gets_no_variable_of_the_container(make_sandbox: Any, language: str) -> None:
    assert make_sandbox(language=language).run(SECRETS[language]).result == []
