"""The user of a sandbox has an entry, whatever its id is."""

import os
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the user of the test has an entry of its own")

EXPRESSIONS = {
    "pwd.getpwuid(os.getuid()).pw_name": "agent",
    "pwd.getpwnam('agent').pw_uid == os.getuid()": True,
    "pwd.getpwuid(os.getuid()).pw_dir == os.path.expanduser('~')": True,
    "[e.pw_name for e in pwd.getpwall()].count('agent')": 1,
    "pwd.getpwuid(0).pw_name": "root",
    "grp.getgrgid(os.getgid()).gr_name": "agent",
    "grp.getgrnam('agent').gr_gid == os.getgid()": True,
    "[e.gr_name for e in grp.getgrall()].count('agent')": 1,
    "pathlib.Path('x').touch() or [pathlib.Path('x').owner(), pathlib.Path('x').group()]": ["agent", "agent"],
    "os.path.expanduser('~agent') == os.path.expanduser('~')": True,
    "os.environ.pop('HOME', 0) and os.path.expanduser('~') == os.getcwd()": True,
    "multiprocessing.get_context('fork').Pool(1).apply(getpass.getuser)": "agent",
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_user_is_known(reused: Any, expression: str) -> None:
    run = reused.run(f"import getpass, grp, multiprocessing, os, pathlib, pwd\n{expression}")
    assert (run.error, run.result) == (None, EXPRESSIONS[expression])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_know_the_user(reused: Any, method: str) -> None:
    code = f"""
import getpass, grp, multiprocessing, os, pwd
def find(_):
    os.environ.pop("USER", None), os.environ.pop("LOGNAME", None)
    return [pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name, getpass.getuser()]
with multiprocessing.get_context({method!r}).Pool(1) as pool:
    found = pool.map(find, [0])
found
"""
    run = reused.run(code)
    assert (run.error, run.result) == (None, [["agent", "agent", "agent"]])


@pytest.mark.parametrize(
    "call", ["pwd.getpwuid(4_000_000_000)", "pwd.getpwnam('nobody-else')", "grp.getgrgid(4_000_000_000)"]
)
def test_others_are_not_known(reused: Any, call: str) -> None:
    assert reused.run(f"import grp, pwd\n{call}").error["type"] == "KeyError"
