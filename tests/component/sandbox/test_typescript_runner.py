"""The TypeScript runner itself: its types, its copies of what Python declares, its parser, and its rights."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.component.sandbox.conftest import SANDBOX_IMAGE, ReusedSandbox
from tests.support.pace import paced

from mcp_exec_sandbox import protocol
from mcp_exec_sandbox.typescript import RunnerNotInstalled, find_deno

RUNNER = SANDBOX_IMAGE / "typescript_runner"


def deno(*arguments: str, cache: Path) -> str:
    """Run Deno in the runner's folder, without a network."""
    environment = {"DENO_DIR": str(cache), "NO_COLOR": "1", "PATH": os.environ["PATH"], "HOME": str(cache)}
    done = subprocess.run(
        [find_deno(), *arguments],
        cwd=RUNNER,
        env=environment,
        capture_output=True,
        text=True,
        timeout=paced(100),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("command", [["check", "--quiet", "main.ts"], ["lint", "--quiet"], ["fmt", "--check"]])
def test_the_runner_has_sound_types_and_the_usual_form(tmp_path: Path, command: list[str]) -> None:
    deno(*command, cache=tmp_path)


NAMES = (
    *("CONTROL_FD", "MAX_NOTES", "NOTE_CHARACTERS", "TYPE_CHARACTERS", "MESSAGE_CHARACTERS", "TRACEBACK_CHARACTERS"),
    *("TOOL_MESSAGE_CHARACTERS", "PROGRESS_CHARACTERS", "ARTIFACT_TEXT_CHARACTERS", "PREVIEW_CHARACTERS"),
    *("SAVED_SKILLS", "SAVED_CODE_BYTES", "SERVERS_FOLDER", "ARTIFACTS_FOLDER", "SKILLS_FOLDER"),
)


def test_both_runners_have_the_same_names_and_bounds(tmp_path: Path) -> None:
    code = "import * as protocol from './protocol.ts'; console.log(JSON.stringify(protocol));"
    declared = json.loads(deno("eval", "--no-config", code, cache=tmp_path))
    assert {name: declared[name] for name in NAMES} == {name: getattr(protocol, name) for name in NAMES}


def test_the_parser_is_the_one_of_the_lock_file() -> None:
    lock = json.loads((RUNNER.parent / "npm/package-lock.json").read_text())
    assert json.loads((RUNNER / "vendor/package-lock.json").read_text()) == lock
    (parser,) = (each["version"] for name, each in lock["packages"].items() if name)
    assert f'version = "{parser}"' in (RUNNER / "vendor/acorn.mjs").read_text()


def test_a_sandbox_without_deno_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RunnerNotInstalled, match="there is no Deno"):
        find_deno()


ATTEMPTS = {
    "new (await import('node:net')).Socket({ fd: 3, readable: true, writable: true } as any)": "EEXIST",
    "(await import('node:fs')).writeSync(3, 'x')": "Bad file descriptor",
    "Deno.openSync('/proc/self/fd/3', { write: true })": "Requires write access",
    "Deno.openSync('/dev/fd/3')": "Requires read access",
    "Deno.readTextFileSync('/proc/self/environ')": "Requires read access",
    "Deno.writeTextFileSync('/etc/x', '')": "Requires write access",
    "(await import('node:fs')).symlinkSync('/etc/passwd', 'link')": "permission",
    "(await import('node:child_process')).execSync('echo hi')": "failed",
    "await new Promise((_, no) => new Worker('data:text/javascript,Deno.readTextFileSync(\"/etc/passwd\")',"
    " { type: 'module' }).addEventListener('error', (e) => { e.preventDefault(); no(new Error(e.message)) }))": (
        "Requires read access"
    ),
    "new (await import('node:inspector')).Session().connect()": "Requires sys access",
    "process.kill(process.ppid, 0)": "Requires run access",
    "Deno.kill(Deno.ppid, 'SIGKILL')": "Requires run access",
    "(process as any).dlopen({ exports: {} }, '/lib/libc.so.6')": "Requires ffi access",
    "(process as any).setuid(0)": "Requires sys access",
    "(globalThis as any).__mcp = {}": "read only",
    "(globalThis as any).__mcp.return = () => 1": "read only",
    "await import(String('file:///etc/passwd'))": "Module",
    "await (0, eval)('import(\"file:///etc/hostname\")')": "Requires read access",
    "new Deno.Command('sh')": "not a constructor",
    "(Deno as any).dlopen('libc.so.6', {})": "not a function",
    "await Deno.permissions.request({ name: 'run' })": "undefined",
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_what_code_has_no_right_to_is_refused(typescript: ReusedSandbox, attempt: str) -> None:
    run = typescript.run(f"{attempt};\n'done'")
    assert run.error is not None, run.result
    assert ATTEMPTS[attempt] in f"{run.error['type']}: {run.error['message']}"


def test_attempts_to_reach_a_network_are_noted(typescript: ReusedSandbox) -> None:
    run = typescript.run("await fetch('http://nowhere.invalid/x').catch(() => 1);\n1")
    assert [(note["kind"], note["message"]) for note in run.end["notes"]] == [
        ("NoNetwork", "nowhere.invalid can't be reached: a sandbox has no network; call a tool instead.")
    ]


def test_an_error_in_a_worker_that_nothing_handles_ends_the_run(typescript: ReusedSandbox) -> None:
    code = "new Worker('data:text/javascript,throw 1', { type: 'module' });\nawait new Promise(() => {})"
    run = typescript.run(code)
    assert run.phase == "Failed"
    assert run.reason in ("UserError", "RunnerDied")


def test_a_sandbox_that_is_started_again_is_empty_before_its_first_run(make_sandbox: Any) -> None:
    sandbox = make_sandbox(language="typescript")
    assert sandbox.client.get("/healthz").json()["state"] == "idle"
    assert [path.name for path in sandbox.temporary.iterdir()] == []


@pytest.mark.parametrize("language", ["ruby", "Python", ""])
def test_an_unknown_language_is_refused(make_sandbox: Any, language: str) -> None:
    sandbox = make_sandbox(language=language)
    assert sandbox.process.wait(paced(20)) == 2
    assert "MCP_EXEC_LANGUAGE must be one of python, typescript" in sandbox.process.stderr.read().decode()
