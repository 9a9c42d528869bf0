"""Code checks: the issues that they find, and the code that they accept."""

from pathlib import Path

import pytest

from mcp_exec_api.code_findings import MAX_FINDINGS, Finding, Rule, Severity
from mcp_exec_common.code_check.rules import MAX_CHECKED_BYTES, find_issues

ROOT = Path(__file__).parents[3]


MEMORY = 512 * 1024**2


def rules(code: str, *, allowed_imports: tuple[str, ...] = ("*",)) -> list[tuple[str, int]]:
    found = find_issues(code, allowed_imports=allowed_imports, memory=MEMORY)
    return [(each.rule.value, each.line) for each in found]


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("eval('1')", "DynamicCode"),
        ("exec('x = 1')", "DynamicCode"),
        ("compile('1', '', 'eval')", "DynamicCode"),
        ("run = eval\nrun('1')", "DynamicCode"),
        ("__import__('os')", "DynamicCode"),
        ("import builtins\nbuiltins.exec('1')", "DynamicCode"),
        ("from builtins import eval as e", "DynamicCode"),
        ("import importlib\nimportlib.import_module('os')", "DynamicCode"),
        ("import subprocess", "Subprocess"),
        ("from subprocess import run", "Subprocess"),
        ("import os\nos.system('ls')", "Subprocess"),
        ("import os as o\no.popen('ls')", "Subprocess"),
        ("import os.path\nos.execvp('ls', [])", "Subprocess"),
        ("import os\nos.posix_spawn('ls', [], {})", "Subprocess"),
        ("import os\nif os.fork():\n    pass", "Subprocess"),
        ("from os import system as shell", "Subprocess"),
        ("from os import *", "Subprocess"),
        ("import asyncio\nawait asyncio.create_subprocess_shell('ls')", "Subprocess"),
        ("import pty", "Subprocess"),
        ("import ctypes.util", "NativeCode"),
        ("import numpy, ctypes as c", "NativeCode"),
        ("import socket", "Network"),
        ("async def f():\n    from socket import create_connection", "Network"),
        ("import asyncio\nawait asyncio.open_connection('a', 1)", "Network"),
    ],
)
def test_unusual_code_is_found(code: str, rule: str) -> None:
    assert [name for name, _ in rules(code)] == [rule]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("```python\nimport subprocess\n```", 2),
        ("Text\n~~~\nimport subprocess\n~~~\n", 3),
        ("\ufeffimport subprocess", 1),
        ("    import subprocess", 1),
        ("%matplotlib inline\nimport subprocess", 2),
        ("%time import subprocess", 1),
        ("%%timeit -n 1\nimport subprocess", 2),
        ("for x in 'a':\n    %timeit -n 1 import subprocess", 2),
    ],
)
def test_an_idiom_that_the_sandbox_accepts_hides_nothing(code: str, line: int) -> None:
    assert rules(code) == [("Subprocess", line)]


def test_code_that_only_a_newer_python_reads_is_not_checked() -> None:
    assert rules("try:\n    import subprocess\nexcept A, B:\n    pass") == [("NotChecked", 1)]
    assert rules("import subprocess\nx = (") == []


@pytest.mark.parametrize(
    "code",
    [
        "print(1)",
        "import re\nre.compile('a')",
        "import os\nos.path.join('a', 'b')\nos.listdir('.')\nos.environ.get('HOME')",
        "model.eval()\nframe.eval('a + b')",
        "import asyncio\nawait asyncio.sleep(1)\nreturn 3",
        "from servers.github import list_issues\nawait list_issues(owner='a')",
        "import subprocess_tools, socketserver2",
        "'eval(1) import subprocess'",
        "from . import sibling",
    ],
)
def test_ordinary_code_is_accepted(code: str) -> None:
    assert rules(code) == []


def test_a_finding_names_its_line_and_says_what_to_do() -> None:
    (found,) = find_issues("x = 1\n\nprint(eval('x'))")
    assert str(found) == "line 3: eval: executes text as code; write the code itself (DynamicCode)"
    assert found == Finding(
        rule=Rule.DYNAMIC_CODE,
        severity=Severity.HIGH,
        line=3,
        message="eval: executes text as code; write the code itself",
    )


def test_the_most_severe_findings_come_first_and_their_number_is_limited() -> None:
    code = "import socket\n" * 50 + "eval('1')\nexec('1')"
    found = rules(code)
    assert found[:3] == [("DynamicCode", 51), ("DynamicCode", 52), ("Network", 1)]
    assert len(found) == MAX_FINDINGS


@pytest.mark.parametrize(
    ("imported", "allowed", "passes"),
    [
        ("import json", ("*",), True),
        ("import json", ("json",), True),
        ("import numpy.linalg as la", ("numpy",), True),
        ("from numpy.linalg import norm", ("numpy",), True),
        ("import numpy", ("numpy.linalg",), False),
        ("import jsonschema", ("json",), False),
        ("import json", (), False),
        ("from __future__ import annotations", (), True),
        ("from servers.github import list_issues", (), True),
        ("from client import call_mcp_tool", (), True),
        ("from tool_discovery import search_tools", (), True),
        ("from skills.report import run", (), True),
    ],
)
def test_a_list_of_imports_allows_modules_and_what_is_below_them(
    imported: str, allowed: tuple[str, ...], passes: bool
) -> None:
    expected = [] if passes else [("ImportNotAllowed", 2)]
    assert rules(f"x = 1\n{imported}", allowed_imports=allowed) == expected


def test_a_refused_import_lists_the_allowed_modules() -> None:
    (found,) = find_issues("import pandas", allowed_imports=("json", "re"))
    assert found.message == "import of pandas: the pool allows json, re"


IMPORTED = "from servers.supabase import execute_sql\nfrom servers.database import query, execute\n"


@pytest.mark.parametrize(
    "call",
    [
        'await execute_sql(query=f"select * from users where name = {name}")',
        'await execute_sql({"query": f"select * from users where name = {name}"})',
        "await query(\"SELECT * FROM users WHERE name = '%s'\" % name)",
        'await query("select * from users where name = " + name)',
        'await execute("delete from users where name = {}".format(name))',
        'await execute("delete from users where name = {name}".format(name=name), [])',
        'sql = f"select {column} from users"\nawait query(sql)',
        'sql = "select * from users"\nsql += f" where name = {name}"\nawait query(sql)',
        'sql = "select * from users"\nsql = sql + " where name = " + name\nawait query(sql)',
        'a = f"select {x}"\nb = a\nawait query(b)',
        'from textwrap import dedent\nawait query(dedent(f"""\n  select {x}\n"""))',
        'await query(f"""\n    with t as (select {x}) select * from t\n""".strip())',
        'arguments = {"sql": f"select {x}"}\nawait query(arguments)',
        'import servers.database as db\nawait db.query(f"select {x}")',
        'from client import call_mcp_tool\nawait call_mcp_tool("mcp__supabase__execute_sql", {"query": f"select {x}"})',
        'from servers.supabase import executeSQL as run\nawait run({"query": f"select {x}"})',
        'import sqlite3\nsqlite3.connect(":memory:").execute(f"insert into t values ({x})")',
    ],
)
def test_values_in_the_text_of_a_query_are_found(call: str) -> None:
    assert [name for name, _ in rules(IMPORTED + call)] == ["FormattedSql"]


@pytest.mark.parametrize(
    "call",
    [
        'await query("select * from users where name = ?", [name])',
        'await query({"sql": "select * from users where name = ?", "parameters": [name]})',
        'await query("select 1" + " from users")',
        'TABLE = "users"\nawait query(f"select * from {TABLE}")',
        'LIMIT = 10\nsql = f"select * from users limit {LIMIT}"\nawait query(sql)',
        'await query(f"select * from users limit {int(limit)}")',
        'sql = "select 1"\nsql = sql + " from users"\nawait query(sql)',
        'await query(f"{topic} tutorial")',
        'frame.query(f"price > {limit}")',
        'print(f"select {name}")',
        "async def run(sql):\n    return await query(sql)",
        "a = b\nb = a\nawait query(a)",
        "await query()",
    ],
)
def test_queries_without_values_in_their_text_are_accepted(call: str) -> None:
    assert rules(IMPORTED + call) == []


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    pass",
        "while 1:\n    x = 1\nelse:\n    pass",
        "import asyncio\nwhile True: await asyncio.sleep(1)",
        "while True:\n    for x in y:\n        if x: break",
        "while True:\n    def f():\n        return 1",
        "if x:\n    while True: print(1)",
        "try:\n    pass\nfinally:\n    while True: print(1)",
    ],
)
def test_an_endless_loop_is_found(code: str) -> None:
    assert [name for name, _ in rules(code)] == ["EndlessLoop"]


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    if await done(): break",
        "while True:\n    return 1",
        "while True:\n    raise SystemExit",
        "import sys\nwhile True:\n    if x: sys.exit(1)",
        "while True:\n    for x in y:\n        pass\n    else:\n        break",
        "while True:\n    while x:\n        if y: raise ValueError",
        "while waiting:\n    await poll()",
        "while False: pass",
        "try:\n    while True: next(rows)\nexcept StopIteration:\n    pass",
        "async with asyncio.timeout(5):\n    while True: await poll()",
        "def worker():\n    while True: queue.get()",
        "def rows():\n    while True: yield 1",
    ],
)
def test_a_loop_that_can_end_is_accepted(code: str) -> None:
    assert rules(code) == []


@pytest.mark.parametrize(
    "value",
    [
        "'x' * 10**9",
        "10**9 * b'x'",
        "[0] * (2 * 10**8)",
        "(0, 1) * 2**30",
        "bytearray(1 << 30)",
        "bytes(2**30)",
        "list(range(10**9))",
        "sorted(range(0, 10**9, 2))",
        "set(range(10**9, 0, -1))",
        "[i for i in range(10**8)]",
        "{i: i for i in range(10**8)}",
        "'x' * n",
        "'x' * m",
    ],
)
def test_a_value_larger_than_a_sandboxs_memory_is_found(value: str) -> None:
    assert rules(f"n = 10**9\nm = n // 1\nx = {value}") == [("LargeValue", 3)]


@pytest.mark.parametrize(
    "value",
    [
        "'x' * 10**6",
        "'x' * k",
        "'x' * unknown",
        "'x' * -10**9",
        "[0] * len(rows)",
        "range(10**12)",
        "sum(i for i in range(10**12))",
        "[i for i in range(10**9) if i < 3]",
        "list(range(0, 10**9, 10**6))",
        "list(range(0, 10, 0))",
        "bytes([1])",
        "2**10**10",
        "'x' * 2**10**10",
        "'x' * (1 // 0)",
        "'x' * loop",
    ],
)
def test_a_value_that_fits_or_has_an_unknown_size_is_accepted(value: str) -> None:
    assert rules(f"k = 10**9\nk = 1\nloop = loop + 1\nx = {value}") == []


def test_a_large_value_is_reported_with_its_size() -> None:
    (found,) = find_issues("x = 'x' * 10**9", memory=MEMORY)
    assert found.message == "a value of at least 953 MiB, of 512 MiB; work on parts of it"
    assert find_issues("x = 'x' * 10**9", memory=2**30) == []


@pytest.mark.parametrize("code", ["print(", "x = \0", "'\ud800' eval(1)", "  indented\nnot"])
def test_invalid_python_has_no_findings(code: str) -> None:
    assert rules(code) == []


@pytest.mark.parametrize("code", ["x = 1\n" * 6000, "-" * 20_000 + "1", "x" + ".a" * 10_000])
def test_code_that_cannot_be_checked_is_reported(code: str) -> None:
    assert rules(code) == [("NotChecked", 1)]


@pytest.mark.parametrize(
    "code",
    [
        "x = " + "+".join(["a"] * 1500),
        "x" + ".a" * 1200,
        "while True:\n    if " + "+".join(["a"] * 1500) + ": break",
        "if a: pass\n" + "elif a: pass\n" * 600,
    ],
)
def test_deeply_nested_code_is_checked_to_a_limit(code: str) -> None:
    assert rules(code + "\neval('1')")[0][0] in ("DynamicCode", "NotChecked")


def test_a_long_sum_hides_nothing() -> None:
    assert rules("x = " + "+".join(["a"] * 1500) + "\neval('1')") == [("DynamicCode", 2)]


@pytest.mark.parametrize(
    "unit",
    [
        "a=b;b=c;c=d;d=a;query(a);",
        "a=f'select{b}';query(a);",
        "a={'sql':a};query(a);",
        "import socket;",
        "while 1:0\n",
        "x='x'*(1+1+1+1+1);",
        "a=b*b;b=c*c;c=a*a;x='x'*a;",
        "os.system;",
        "os." + "exec" * 1000 + ";",
    ],
)
def test_the_check_of_any_code_ends(unit: str) -> None:
    assert len(find_issues(unit * (MAX_CHECKED_BYTES // len(unit)))) <= MAX_FINDINGS


def test_every_rule_is_documented() -> None:
    page = (ROOT / "docs" / "platform" / "code-check.md").read_text()
    assert all(f"| {rule} |" in page for rule in Rule)
