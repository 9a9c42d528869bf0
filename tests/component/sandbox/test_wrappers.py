"""Wrappers that are put into an idle sandbox, and what the code of an execution sees of them."""

import json
import socket

import pytest
from tests.component.sandbox.conftest import TOKEN

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.wrappers import build_files, format_catalog

TOOLS = {
    "github": [("create_issue", {"owner": True, "repo": True, "from": False, "labelNames": False}), ("star", {})],
    "file-system": [("read_file", {"path": True})],
    "slack": [("post", {"text": True})],
}


def wrapper(server, tool, parameters):
    spellings = {"from_": "from", "label_names": "labelNames", "labelNames": "labelNames"}
    spellings = {spelling: name for spelling, name in spellings.items() if name in parameters}
    return f'''"""The tool {tool}."""

from typing import Any

from client import call_wrapped


async def {tool}(*values: Any, **arguments: Any) -> Any:
    """Does {tool}."""
    return await call_wrapped("{server}.{tool}", values, arguments, {parameters!r}, {spellings!r})
'''


def wrappers(digest="h1", servers=tuple(TOOLS)):
    files = {}
    for server in servers:
        module = server.replace("-", "_")
        names = [tool for tool, _ in TOOLS[server]]
        imports = "".join(f"from servers.{module}.{name} import {name}\n" for name in names)
        files[f"{module}/__init__.py"] = f'"""Server {server}."""\n\n{imports}\n__all__ = {names!r}\n'
        for tool, parameters in TOOLS[server]:
            files[f"{module}/{tool}.py"] = wrapper(server, tool, parameters)
    catalog = [
        {"server": server, "tools": [{"name": tool, "description": f"Can {tool}."} for tool, _ in TOOLS[server]]}
        for server in servers
    ]
    files["catalog.json"] = json.dumps({"hash": digest, "servers": catalog})
    return {"hash": digest, "files": files}


@pytest.fixture
def filled(reused):
    """A sandbox that has wrappers."""
    reused.clean()
    assert reused.client.put("/v1/wrappers", json=wrappers()).json() == {"hash": "h1"}
    return reused


def test_the_servers_that_an_execution_may_use_are_real_files(filled, broker):
    assert filled.client.get("/healthz").json() == {"state": "idle", "wrappers": "h1", "protocols": [1, 2]}
    code = """
import inspect, os
import servers
from servers.github import create_issue
text = inspect.getsource(inspect.getmodule(create_issue))
[sorted(os.listdir("servers")), open("servers/github/create_issue.py").read() == text,
 inspect.getsource(create_issue).splitlines()[0], create_issue.__code__.co_filename, "search_tools" in servers.__doc__,
 await create_issue({"owner": "o"}, repo="r"), await create_issue(owner="o", repo="r", from_=1, label_names=["x"])]
"""
    run = filled.run(code, tools={**broker.job, "allow": ["github.create_issue", "file-*.*"], "wrappers": "h1"})
    path = filled.workspace / "servers/github/create_issue.py"
    assert run.result == [
        ["__init__.py", "__pycache__", "file_system", "github"],
        True,
        "async def create_issue(*values: Any, **arguments: Any) -> Any:",
        str(path),
        True,
        {"owner": "o", "repo": "r"},
        {"owner": "o", "repo": "r", "from": 1, "labelNames": ["x"]},
    ]
    assert broker.calls[0].tool == "github.create_issue"
    assert list(path.parent.glob("__pycache__/create_issue.*.pyc"))


def test_what_an_execution_may_not_use_is_soon_gone(filled, broker):
    code = "import os\nwhile os.path.exists('.mcp-exec'):\n    pass\nsorted(os.listdir('.')), os.listdir('servers')"
    run = filled.run(code, tools={**broker.job, "allow": ["slack.*"]})
    assert run.result[0] == ["artifacts", "servers"]
    assert sorted(run.result[1]) == ["__init__.py", "__pycache__", "slack"]


SPELLINGS = ("import servers.{0}", "from servers import {0}", "from servers.{0} import x")
MISSING_SERVERS = {
    "a misspelled server": (
        ["slack.*", "github.star"],
        "slak",
        "it is none of the servers that this execution may use: github, slack (spec.tools: slack.*, github.star). "
        "Did you mean: servers.slack?",
    ),
    "a misspelled server if all are allowed": (
        ["*.*"],
        "slak",
        "there is no such server; those with tools that this execution may use: file-system, github, slack "
        "(spec.tools: *.*). "
        "Did you mean: servers.slack?",
    ),
    "a server of others": (
        ["slack.*", "file-*.*"],
        "github",
        "it is none of the servers that this execution may use: file-system, slack (spec.tools: slack.*, file-*.*)",
    ),
    "a server that nobody has": (
        ["slack.*", "file-*.*"],
        "jira",
        "it is none of the servers that this execution may use: file-system, slack (spec.tools: slack.*, file-*.*)",
    ),
    "a server that only spec.tools names": (
        ["jira.*"],
        "jira",
        "there is no such server; those with tools that this execution may use: none (spec.tools: jira.*)",
    ),
    "one of two servers that spec.tools names": (
        ["jira.*", "slack.post"],
        "jira",
        "there is no such server; those with tools that this execution may use: slack (spec.tools: jira.*, slack.post)",
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("case", MISSING_SERVERS)
def test_a_server_that_cannot_be_used_names_those_that_can(filled, broker, case, spelling):
    allow, server, expected = MISSING_SERVERS[case]
    run = filled.run(spelling.format(server), tools={**broker.job, "allow": allow})
    assert (run.error["type"], run.error["line"]) == ("ModuleNotFoundError", 1)
    assert run.error["message"] == f"No module named 'servers.{server}': {expected}"


def test_the_interpreter_has_no_names_of_servers_that_the_code_may_not_use(filled, broker):
    code = "from mcp_exec_sandbox.tools.tool_session import get_session\nget_session().servers"
    assert filled.run(code, tools={**broker.job, "allow": ["slack.*"]}).result == ["slack"]


def test_without_any_server_the_answer_is_the_same(reused, broker):
    reused.clean()
    assert reused.client.put("/v1/wrappers", json={"hash": "h0", "files": {}}).json() == {"hash": "h0"}
    run = reused.run("from servers.github import list_issues", tools={**broker.job, "allow": ["github.*"]})
    known = "there is no such server; those with tools that this execution may use: none (spec.tools: github.*)"
    assert run.error["message"] == f"No module named 'servers.github': {known}"


def test_a_later_job_of_a_session_knows_the_servers(make_sandbox, broker):
    filled = make_sandbox()
    filled.client.put("/v1/wrappers", json=wrappers()).raise_for_status()
    fields = {"owner": "a" * 32, "session": True, "tools": {**broker.job, "allow": ["*.*"]}}
    assert filled.run("1", **fields).result == 1
    run = filled.run("import servers.jira", id="uid-2", **fields)
    assert "may use: file-system, github, slack" in run.error["message"]


@pytest.mark.parametrize("statement", ["from servers.github import creat_issue", "import servers.github.creat_issue"])
def test_a_tool_that_a_server_has_not_says_what_may_have_been_meant(filled, broker, statement):
    run = filled.run(statement, tools={**broker.job, "allow": ["github.*"]})
    assert (run.error["type"], run.error["line"]) == ("ModuleNotFoundError", 1)
    assert run.error["message"] == "servers.github has no 'creat_issue'. Did you mean: create_issue?"


def test_without_tools_there_are_no_servers_and_the_error_says_why(filled):
    code = "import os\nprint(os.path.exists('servers'))\nimport servers.github"
    run = filled.run(code)
    assert run.stdout == "False\n"
    assert run.error["message"].endswith("this execution may call no tools, as its spec.tools is empty")


def test_without_wrappers_the_package_is_there_and_says_what_works(sandbox, broker):
    code = "import os\nprint(os.listdir('servers'))\nimport servers.github"
    run = sandbox.run(code, tools=broker.job)
    assert run.stdout == "['__init__.py']\n"
    assert "`from client import call_mcp_tool` works without" in run.error["message"]


def test_wrong_parameters_are_refused_before_anything_travels(filled, broker):
    code = """
from client import ToolError
from servers.github import create_issue
found = []
for call in (lambda: create_issue(owner="o", repo="r", labelname=[]), lambda: create_issue({"owner": "o"}),
             lambda: create_issue({"owner": "o"}, owner="o", repo="r"), lambda: create_issue("o")):
    try:
        await call()
    except ToolError as error:
        found.append([error.reason, error.message, error.suggestions, error.parameters])
found
"""
    known = ["owner*", "repo*", "from", "labelNames"]
    assert filled.run(code, tools=broker.job).result == [
        ["InvalidArguments", "there is no parameter labelname", ["labelNames"], known],
        ["InvalidArguments", "missing parameter: repo", [], known],
        ["InvalidArguments", "the parameter owner is given twice", [], known],
        ["InvalidArguments", "missing parameter: repo (positional arguments were taken as owner)", [], known],
    ]
    assert broker.calls == []


PROBE = {"type": "object", "properties": {"owner": {}, "title": {}, "body": {}}, "required": ["title", "owner"]}
ROWS = [{"amount": 5}, {"amount": 250}]
TEXT = f"Note <untrusted-data-ab12>.\n<untrusted-data-ab12>\n{json.dumps(ROWS)}\n</untrusted-data-ab12>\nmore"
GENERATED = [
    Catalog.from_tools("hub", [{"name": name, "inputSchema": PROBE} for name in ("create_issue", "get-URL", "other")]),
    Catalog.from_tools(
        "supabase",
        [
            {"name": "execute_sql", "inputSchema": {"properties": {"query": {}}, "required": ["query"]}},
            {"name": "list_tables", "inputSchema": {"properties": {"schemas": {"type": "array"}}}},
            {"name": "apply_migration"},
        ],
    ),
]


@pytest.fixture
def generated(reused, broker):
    """A sandbox that has wrappers as the broker generates them, and a broker that answers SQL as Supabase does."""
    reused.clean()
    files = {**build_files(GENERATED), "catalog.json": format_catalog(GENERATED)}
    assert reused.client.put("/v1/wrappers", json={"hash": "h", "files": files}).status_code == 200
    for name in ("supabase.execute_sql", "mcp__supabase__executeSQL"):
        broker.tools[name] = lambda call: call.value({"result": TEXT})
    broker.tools["supabase.list_tables"] = lambda call: call.value({"tables": [call.arguments]})
    return reused


MISSING_TOOLS = {
    "misspelled": ("create_isue", ". Did you mean: create_issue?"),
    "unknown": ("list_all_of_them", ": it has create_issue, get_url, other"),
}


@pytest.mark.parametrize("tool", MISSING_TOOLS)
def test_an_attribute_that_a_server_has_not_is_answered_as_an_import_is(generated, broker, tool):
    name, hint = MISSING_TOOLS[tool]
    for code in (f"import servers.hub as h\nawait h.{name}()", f"from servers import hub\nhub.{name}"):
        run = generated.run(code, tools=broker.job)
        assert (run.error["type"], run.error["line"]) == ("AttributeError", 2)
        assert run.error["message"] == f"servers.hub has no {name!r}{hint}"
        assert run.error["traceback"].lower().count("did you mean") == hint.count("Did")
    run = generated.run(f"import servers.hub as h\n[hasattr(h, {name!r}), getattr(h, '_x', 1)]", tools=broker.job)
    assert run.result == [False, 1]


def test_a_call_of_a_tool_without_its_server_names_those_that_have_it(generated, broker):
    text = "'x' names no tool: write SERVER.TOOL or mcp__SERVER__TOOL"
    for name, suggested in {
        "execute_sql": ["supabase.execute_sql"],
        "executeSQL": ["supabase.execute_sql"],
        "execute_sq": ["supabase.execute_sql"],
        "zzz": [],
    }.items():
        broker.tools[name] = lambda call: call.error("ToolError", text, reason="NoSuchTool")
        code = f"try:\n    await call_mcp_tool({name!r})\nexcept Exception as e:\n    found = e.suggestions\nfound"
        assert generated.run(code, tools=broker.job).result == suggested


def test_arguments_in_a_list_are_refused_with_what_they_were_taken_as(generated, broker):
    broker.tools["hub.create_issue"] = lambda call: call.error(
        "ToolError", "title is a list", reason="InvalidArguments"
    )
    hint = "title is a list (positional arguments were taken as {}; write the arguments as a dict)"
    for values, names in (("['o']", "title"), ("'o', 'r'", "title, owner")):
        run = generated.run(f"await call_mcp_tool('hub.create_issue', {values})", tools=broker.job)
        assert hint.format(names) in run.error["message"]
    for values in ("{'title': []}", "title=[]", "{'title': []}, dict"):
        run = generated.run(f"await call_mcp_tool('hub.create_issue', {values})", tools=broker.job)
        assert "positional" not in run.error["message"]


def test_a_package_loads_only_the_tools_that_are_used_and_knows_them_all(generated, broker):
    code = """
import inspect, sys
def loaded():
    return sorted(name for name in sys.modules if name.startswith("servers.hub."))
from servers.hub import create_issue
first = loaded()
import servers.hub
import servers.hub.other
listed = [name for name in dir(servers.hub) if not name.startswith("_") and name[0].islower()]
second = loaded()
star = {}
exec("from servers.hub import *", star)
[first, listed, second, callable(servers.hub.other), servers.hub.other is star["other"],
 star["getURL"] is star["get_url"], inspect.iscoroutinefunction(create_issue),
 "create_issue" in inspect.getsource(servers.hub), inspect.getmodule(create_issue).__name__,
 hasattr(servers.hub, "nothing")]
"""
    assert generated.run(code, tools={**broker.job, "allow": ["hub.*"]}).result == [
        ["servers.hub.create_issue"],
        ["createIssue", "create_issue", "getURL", "getUrl", "get_url", "other"],
        ["servers.hub.create_issue", "servers.hub.other"],
        *(True, True, True, True, True),
        "servers.hub.create_issue",
        False,
    ]


def test_code_calls_tools_in_all_the_forms_that_models_write(generated, broker):
    code = """
import servers.supabase
from servers import hub, supabase
from servers.hub import createIssue, CREATE_ISSUE
from client import call_mcp_tool
wanted = {"title": "t", "owner": "o"}
answers = [
    await hub.create_issue("t", "o"), await createIssue("t", owner="o"),
    await hub.CreateIssue({"title": "t"}, owner="o"),
    await hub.getURL("t", "o"), await hub.getUrl("t", "o"), await CREATE_ISSUE("t", "o"),
    await call_mcp_tool("hub.create_issue", "t", "o"), await call_mcp_tool("mcp__hub__createIssue", "t", "o", dict),
    await call_mcp_tool("hub.get-URL", "t", owner="o"),
]
rows = [await supabase.executeSQL("SELECT"), await servers.supabase.executeSql("SELECT"),
        await supabase.execute_sql(query="SELECT"), await call_mcp_tool("supabase.execute_sql", {"query": "SELECT"}),
        await call_mcp_tool("mcp__supabase__executeSQL", "SELECT", list[dict])]
tables = [await supabase.listTables(["public"]), await call_mcp_tool("supabase.list_tables", ["public"])]
[all(answer == wanted for answer in answers), all(found == rows[0] for found in rows), rows[0], tables]
"""
    tables = [[{"schemas": ["public"]}]] * 2
    assert generated.run(code, tools=broker.job).result == [True, True, ROWS, tables]


def test_positional_arguments_that_cannot_be_bound_are_refused_with_the_order(generated, broker):
    code = """
from client import ToolError, call_mcp_tool
from servers import hub
found = []
for call in (lambda: hub.other(1, 2, 3, 4), lambda: hub.other("t", title="t"),
             lambda: call_mcp_tool("hub.other", "t", title=1),
             lambda: call_mcp_tool("hub.other", 1, 2, 3, 4), lambda: call_mcp_tool("nobody.other", "t")):
    try:
        await call()
    except ToolError as error:
        found.append(error.message)
found
"""
    most = "4 positional arguments were given, it takes at most 3, in this order: title, owner, body"
    assert generated.run(code, tools=broker.job).result == [
        most,
        "the parameter title is given twice",
        "the parameter title is given twice",
        most,
        "its parameters are unknown here, so write the arguments as a dict or as keywords",
    ]
    assert broker.calls == []


def test_a_name_that_an_overlay_adds_works_for_call_mcp_tool_too(sandbox, broker):
    method = {"enum": ["create", "update"]}
    tools = [
        {"name": "issue_write", "inputSchema": {"properties": {"method": method, **PROBE["properties"], "repo": {}}}}
    ]
    tools += [{"name": name} for name in ("search_code", "get_file_contents")]
    catalogs = [Catalog.from_tools("github", tools)]
    files = {**build_files(catalogs), "catalog.json": format_catalog(catalogs)}
    assert sandbox.client.put("/v1/wrappers", json={"hash": "h", "files": files}).status_code == 200
    broker.tools["mcp__github__create_issue"] = lambda call: call.error("ToolError", "no", reason="NoSuchTool")
    broker.tools["mcp__github__nothing"] = lambda call: call.error("ToolError", "no", reason="NoSuchTool")
    code = """
from client import ToolError, call_mcp_tool
made = await call_mcp_tool('mcp__github__create_issue', {'owner': 'o', 'repo': 'r', 'title': 't'}, dict)
try:
    await call_mcp_tool('mcp__github__nothing', {})
except ToolError as error:
    [made, error.reason]
"""
    run = sandbox.run(code.replace("    [made", "    result = [made"), tools=broker.job)
    assert run.result == [{"owner": "o", "repo": "r", "title": "t", "method": "create"}, "NoSuchTool"]
    assert broker.calls[1].tool == "github.issue_write"


def test_a_failure_in_a_wrapper_shows_the_codes_own_frames_alone(filled, broker):
    run = filled.run("from servers.slack import post\n\nawait post()", tools=broker.job)
    assert (run.error["type"], run.error["line"]) == ("ToolError", 3)
    assert run.error["traceback"].count("File ") == 1


def test_search_finds_exactly_the_tools_that_may_be_called(filled, broker):
    code = """
from tool_discovery import search_tools
full = search_tools("issue", detail_level="full")[0]
try:
    search_tools(detail_level="some")
except ValueError as error:
    refused = str(error)
[search_tools(), search_tools("issue", "with_description", 1), sorted(full), refused]
"""
    run = filled.run(code, tools={**broker.job, "allow": ["github.create_issue", "file-system.*"]})
    listed, described, keys, refused = run.result
    assert listed == [{"name": "read_file", "server": "file-system"}, {"name": "create_issue", "server": "github"}]
    assert described[0]["import"] == "from servers.github import create_issue"
    assert keys == ["description", "import", "input_schema", "name", "output_schema", "server", "signature"]
    assert "detail_level" in refused
    assert broker.calls == []


def test_a_search_tells_the_package_that_is_here_also_where_another_server_has_the_plain_name(sandbox, broker):
    catalogs = [Catalog.from_tools(name, [{"name": "t"}]) for name in ("a-b", "a_b")]
    files = {**build_files(catalogs), "catalog.json": format_catalog(catalogs)}
    assert sandbox.client.put("/v1/wrappers", json={"hash": "h", "files": files}).status_code == 200
    code = """
from tool_discovery import search_tools
(found,) = search_tools(detail_level="with_description")
exec(found["import"])
[found["server"], t.__module__ == found["import"].split()[1] + ".t"]
"""
    assert sandbox.run(code, tools={**broker.job, "allow": ["a_b.*"]}).result == ["a_b", True]


def test_without_tools_a_search_finds_nothing(filled):
    assert filled.run("from tool_discovery import search_tools\nsearch_tools('issue')").result == []


def test_later_wrappers_replace_earlier_ones_wholly(filled, broker):
    assert filled.client.put("/v1/wrappers", json=wrappers("h2", ["slack"])).json() == {"hash": "h2"}
    assert filled.client.put("/v1/wrappers", json=wrappers("h3", ["slack", "github"])).json() == {"hash": "h3"}
    assert filled.client.get("/healthz").json()["wrappers"] == "h3"
    assert sorted(path.name for path in filled.workspace.iterdir()) == [".mcp-exec", "artifacts"]
    assert len(list((filled.workspace / ".mcp-exec").iterdir())) == 1
    run = filled.run("import os\nsorted(os.listdir('servers'))", tools=broker.job)
    assert run.result == ["__init__.py", "__pycache__", "github", "slack"]


def test_a_client_that_goes_away_in_the_middle_leaves_what_was_there(filled):
    port = filled.client.base_url.port
    body = json.dumps(wrappers("h2")).encode()
    head = f"PUT /v1/wrappers HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {len(body)}"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body[:-1])
    assert filled.client.get("/healthz").json()["wrappers"] == "h1"
    assert filled.client.put("/v1/wrappers", json=wrappers("h3")).json() == {"hash": "h3"}


def test_wrappers_are_taken_only_while_the_sandbox_is_idle(sandbox):
    response = sandbox.start("import threading\nthreading.Event().wait()")
    assert sandbox.client.put("/v1/wrappers", json=wrappers()).status_code == 409
    sandbox.client.delete("/v1/execution")
    response.read()
    assert sandbox.client.put("/v1/wrappers", json=wrappers()).status_code == 409
    assert sandbox.client.get("/healthz").json()["wrappers"] is None
    assert [path.name for path in sandbox.workspace.iterdir()] == ["artifacts"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "hash"),
        ({"hash": "", "files": {}}, "hash"),
        ({"hash": "h", "files": []}, "files"),
        ({"hash": "h", "files": {"a.py": 5}}, "a.py"),
        ({"hash": "h", "files": {"../a.py": ""}}, "../a.py"),
        ({"hash": "h", "files": {"a/../../b.py": ""}}, "a/../../b.py"),
        ({"hash": "h", "files": {"/etc/a.py": ""}}, "/etc/a.py"),
        ({"hash": "h", "files": {"a/.hidden": ""}}, ".hidden"),
        ({"hash": "h", "files": {"a\n.py": ""}}, "path"),
        ({"hash": "h", "files": {"a": "", "a/b.py": ""}}, "'a' is a file and a folder"),
        ({"hash": "h", "files": {"catalog.json": "{"}}, "catalog.json"),
        ({"hash": "h", "files": {"catalog.json": '{"servers": [{}]}'}}, "catalog.json"),
        ({"hash": "h", "files": {}, "more": 1}, "more"),
    ],
)
def test_bad_wrappers_are_refused_by_name_and_change_nothing(filled, body, named):
    response = filled.client.put("/v1/wrappers", json=body)
    assert response.status_code == 400
    assert named in response.json()["error"]
    assert filled.client.get("/healthz").json() == {"state": "idle", "wrappers": "h1", "protocols": [1, 2]}


def test_the_size_of_wrappers_is_bounded_above_that_of_a_job(sandbox):
    large = {"hash": "h", "files": {"a/b.py": "#" * (6 << 20)}}
    assert sandbox.client.put("/v1/wrappers", json=large).status_code == 200
    assert sandbox.client.put("/v1/wrappers", content=b" " * (17 << 20)).status_code == 413


def test_wrappers_want_the_token(idle):
    assert idle.client.put("/v1/wrappers", json=wrappers(), headers={"authorization": ""}).status_code == 401


def test_a_module_that_is_no_python_harms_only_itself(sandbox, broker):
    body = wrappers()
    body["files"]["github/star.py"] = "def ("
    body["files"]["github/__init__.py"] = ""
    assert sandbox.client.put("/v1/wrappers", json=body).status_code == 200
    code = "from servers.github.create_issue import create_issue\nawait create_issue(owner='o', repo='r')"
    assert sandbox.run(code, tools=broker.job).result == {"owner": "o", "repo": "r"}


@pytest.mark.parametrize(
    ("tools", "named"),
    [
        ([], "tools"),
        ({"url": "http://127.0.0.1:1", "token": "t", "allow": [], "more": 1}, "tools.more"),
        ({"url": "https://127.0.0.1:1", "token": "t", "allow": []}, "tools.url"),
        ({"url": "http://broker:1", "token": "t", "allow": []}, "tools.url"),
        ({"url": "http://127.0.0.1", "token": "t", "allow": []}, "tools.url"),
        ({"url": "http://u@127.0.0.1:1", "token": "t", "allow": []}, "tools.url"),
        ({"url": "http://127.0.0.1:1", "token": "a\r\nb", "allow": []}, "tools.token"),
        ({"url": "http://127.0.0.1:1", "token": "", "allow": []}, "tools.token"),
        ({"url": "http://127.0.0.1:1", "token": "t", "allow": "a.b"}, "tools.allow"),
        ({"url": "http://127.0.0.1:1", "token": "t", "allow": ["a"]}, "tools.allow"),
        ({"url": "http://127.0.0.1:1", "token": "t", "allow": [], "wrappers": 5}, "tools.wrappers"),
    ],
)
def test_a_job_with_a_bad_field_of_tools_is_refused(idle, tools, named):
    response = idle.start("1", tools=tools)
    assert response.status_code == 400
    assert json.loads(response.read())["error"].startswith(named)
