"""Tool search: results, their order, and invalid queries."""

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_tools.catalog import Catalog, assign_modules
from mcp_exec_tools.search.entries import stem
from mcp_exec_tools.search.index import Index
from mcp_exec_tools.search.relatives import is_misspelled
from mcp_exec_tools.wrappers import build_files


def tool(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


GITHUB = Catalog.from_tools(
    "github",
    [
        tool("create_issue", "Create a new issue", title={"type": "string", "description": "Headline of it"}),
        tool("create_pull_request", "Create a new pull request"),
        tool("getFileContents", "Get the contents of a file or directory"),
        tool("list_issues", "List issues with filtering options"),
        tool("search-code", "Search for code"),
    ],
)
OTHER = Catalog.from_tools(
    "my-files",
    [tool("delete_file", "Deletes a file, as GitHub would"), tool("github_backup", "Saves a copy")],
)
INDEX = Index([OTHER, GITHUB])


def names(query: str, **options: Any) -> list[str]:
    return [found["name"] for found in INDEX.search(query, **options)]


@pytest.mark.parametrize(
    ("declared", "returned"),
    [
        (None, None),
        ({"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"type": "object", "properties": {"result": {"type": "array"}}, "required": ["result"], "$defs": {"A": {}}},
            {"type": "array", "$defs": {"A": {}}},
        ),
        ({"properties": {"result": {"type": "string"}}, "x-fastmcp-wrap-result": True}, {"type": "string"}),
        ({"properties": {"result": True}, "required": ["result"]}, {}),
        ({"properties": {"result": {}, "more": {}}, "required": ["result"]},) * 2,
    ],
)
def test_the_output_schema_is_that_of_the_value_that_code_gets(declared: Any, returned: Any) -> None:
    index = Index([Catalog.from_tools("sheets", [{"name": "get_sheet", "outputSchema": declared}])])
    assert index.search("", detail_level="full")[0]["output_schema"] == returned


def test_an_empty_query_lists_all_by_server_and_name() -> None:
    listed = [(found["server"], found["name"]) for found in INDEX.search("")]
    assert listed == [
        ("github", "create_issue"),
        ("github", "create_pull_request"),
        ("github", "get_file_contents"),
        ("github", "list_issues"),
        ("github", "search_code"),
        ("my-files", "delete_file"),
        ("my-files", "github_backup"),
    ]
    assert INDEX.search("  ", limit=2) == INDEX.search("")[:2]


def test_a_servers_name_lists_its_tools_and_then_those_named_after_it() -> None:
    found = [(found["server"], found["name"]) for found in INDEX.search("GitHub")]
    assert [server for server, _ in found] == ["github"] * 5 + ["my-files"]
    assert found[-1] == ("my-files", "github_backup")
    assert names("my files") == ["delete_file", "github_backup"]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("getFileContents", "get_file_contents"),
        ("mcp__github__create_issue", "create_issue"),
        ("github.list_issues", "list_issues"),
        ("search-code", "search_code"),
        ("open a PR", "create_pull_request"),
        ("creating issues", "create_issue"),
        ("remove files", "delete_file"),
        ("report a bug", "create_issue"),
        ("headline", "create_issue"),
        ("grep", "search_code"),
    ],
)
def test_spellings_endings_and_other_words_find_their_tool(query: str, best: str) -> None:
    assert names(query)[0] == best


DOCS = Catalog.from_tools(
    "docs", [tool("resolve-library-id", "Finds an ID"), tool("query-docs", "Reads docs", query={})]
)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("compare_libraries", "compare_libraries"),
        ("getLibraryDocs", "get_library_docs"),
        ("docs.get_docs_by_name", "get_docs_by_name"),
        ("read docs", "query_docs"),
    ],
)
def test_what_an_overlay_adds_is_found_by_its_name(query: str, best: str) -> None:
    assert Index([DOCS]).search(query)[0] == {"name": best, "server": "docs"}


def test_a_function_that_an_overlay_adds_is_found_like_a_tool() -> None:
    found = {each["name"]: each for each in Index([DOCS]).search("", detail_level="full")}
    assert [*found] == ["compare_libraries", "get_docs_by_name", "get_library_docs", "query_docs", "resolve_library_id"]
    composed = found["compare_libraries"]
    assert composed["import"] == "from servers.docs import compare_libraries"
    assert composed["description"] == "Compare the documentation of several libraries on one topic."
    assert (composed["input_schema"]["required"], composed["output_schema"]) == (["names"], None)


def test_a_tool_with_fixed_arguments_that_an_overlay_adds_is_found_by_its_own_parameters() -> None:
    method = {"type": "string", "enum": ["create", "update"]}
    write = tool("issue_write", "Writes issues", method=method, owner={}, repo={}, title={}, state={})
    base = Catalog.from_tools("base", [write, tool("search_code"), tool("get_file_contents")])
    found = Index([base]).search("create issue", detail_level="full", limit=1)[0]
    assert (found["name"], found["import"]) == ("create_issue", "from servers.base import create_issue")
    assert list(found["input_schema"]["properties"]) == ["owner", "repo", "title"]
    assert Index([base]).search("", allow=["base.search_code"]) == [{"name": "search_code", "server": "base"}]


def test_what_an_overlay_adds_is_found_if_all_tools_that_it_calls_are_allowed() -> None:
    index = Index([DOCS])
    assert [each["name"] for each in index.search("", allow=["docs.query-docs"])] == ["get_library_docs", "query_docs"]
    assert len(index.search("", allow=["docs.*"])) == 5


def test_the_import_is_of_the_package_that_there_is() -> None:
    alike = [Catalog.from_tools(name, [tool("t")]) for name in ("a.b", "a-b")]
    modules = {name.partition("/")[0] for name in build_files(alike)}
    imports = {each["import"] for each in Index(alike).search("", detail_level="with_description")}
    assert imports == {f"from servers.{module} import t" for module in modules}
    (alone,) = Index(alike[:1], modules=assign_modules(alike)).search("", detail_level="with_description")
    assert alone["import"] == f"from servers.{assign_modules(alike)['a.b']} import t"


def test_ties_and_the_order_of_catalogs_change_nothing() -> None:
    many = [Catalog.from_tools(f"s{number}", [tool("read_page", "Reads a page")]) for number in range(20)]
    wanted = [f"s{number}" for number in sorted(range(20), key=str)]
    for seed in range(3):
        shuffled = random.Random(seed).sample(many, len(many))
        assert [found["server"] for found in Index(shuffled).search("read a page")] == wanted


def test_an_index_without_matches_finds_nothing() -> None:
    assert Index([]).search("anything") == []
    assert Index([Catalog.from_tools("empty", [])]).search("") == []
    assert INDEX.search("qwertyuiop") == []


def test_a_hostile_catalog_is_searched_like_any() -> None:
    hostile = [
        {"name": "\u0000\n'''", "description": "x " * 10**6, "inputSchema": {"properties": {"a": 5, "b": {"c": []}}}},
        {"name": "e\u0301\u4e2d", "description": None, "inputSchema": {"properties": ["no", "object"]}},
        {"name": "import os", "description": "__import__('os')", "inputSchema": {"properties": {"": {}}}},
    ]
    index = Index([Catalog.from_tools("évil", hostile)])
    assert len(index.search("")) == 3
    assert [found["name"] for found in index.search("import os")] == ["import_os"]


@given(st.text(max_size=200))
def test_any_text_can_be_searched_for(query: str) -> None:
    assert len(INDEX.search(query)) <= 7


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("issues", "issue"),
        ("queries", "query"),
        ("branches", "branch"),
        ("created", "create"),
        ("committing", "commit"),
        ("directories", "folder"),
        ("repos", "repository"),
    ],
)
def test_words_that_are_the_same_meet(one: str, other: str) -> None:
    assert stem(one) == stem(other)


TASKS = Catalog.from_tools(
    "tasks",
    [
        tool("write_review", "Writes one", event={"enum": ["APPROVE", "REQUEST_CHANGES"]}),
        tool("read_entry", "Reads one", path={"description": "Where the manuscript is"}),
        tool("comment", "Says something", owner={}, repo={}, issue_number={}),
        tool("reimburse", "Pays money back"),
    ],
)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("riemburse", "reimburse"),
        ("rimburse", "reimburse"),
        ("reinburse", "reimburse"),
        ("reeimburse", "reimburse"),
        ("raimbursement", None),
        ("mansucript", "read_entry"),
        ("approving", "write_review"),
        ("what about requested changes", "write_review"),
        ("thank the author of #12", "comment"),
        ("what does acme/shop need", "comment"),
        ("print notes/today.md", "read_entry"),
        ("print TODAY.MD", "read_entry"),
        ('what is in "tasks/comment of a review" at docs/a.md', "read_entry"),
    ],
)
def test_misspelled_words_values_and_the_texts_of_schemas_find_their_tool(query: str, best: str | None) -> None:
    found = Index([TASKS]).search(query)
    assert (found[0]["name"] if found else None) == best


@pytest.mark.parametrize(
    ("word", "other", "misspelled"),
    [
        ("sandbox", "sandbo", True),
        ("sandbox", "sanbdox", True),
        ("sandbox", "sandbux", True),
        ("sandbox", "sandboxy", True),
        ("sandbox", "sandbox", False),
        ("sandbox", "sandxbo", False),
        ("sandbox", "landbux", False),
        ("sandbox", "sandb", False),
    ],
)
def test_one_letter_or_a_swap_makes_a_misspelled_word(word: str, other: str, misspelled: bool) -> None:
    assert is_misspelled(word, other) == is_misspelled(other, word) == misspelled


def test_results_for_typescript_have_its_names_imports_and_signatures() -> None:
    [found] = INDEX.search("create_issue", detail_level="full", limit=1, language="typescript")
    [python] = INDEX.search("create_issue", detail_level="full", limit=1)
    assert (found["name"], found["import"]) == ("createIssue", 'import { createIssue } from "servers/github"')
    assert found["signature"].startswith("createIssue(")
    assert {key for key in found if found[key] != python[key]} == {"name", "import", "signature"}
    assert INDEX.find("github.create_issue", language="typescript") == found
    assert INDEX.find("createIssue", language="typescript") == found
    assert INDEX.search("create_issue", limit=1, language="typescript") == [{"name": "createIssue", "server": "github"}]


def test_a_name_for_typescript_is_one_that_code_can_import() -> None:
    tools = [tool(name, "It works") for name in ("delete", "then", "list_all", "listAll", "x" * 60)]
    index = Index([Catalog.from_tools("s", tools)])
    names = {found["name"] for found in index.search("", language="typescript")}
    files = build_files([Catalog.from_tools("s", tools)], language="typescript")
    exported = set(re.findall(r"export function (\w+)|as (\w+)", files["s/mod.js"]))
    assert names <= {name for pair in exported for name in pair}
    assert {"delete_", "then_"} <= names


def test_a_skill_is_imported_by_its_name_in_each_language() -> None:
    index = Index([Catalog.from_skills([{"name": "weekly_report", "description": "Reports a week."}])])
    lines = [
        index.search("weekly", detail_level="full", language=each)[0]["import"] for each in ("python", "typescript")
    ]
    assert lines == ["from skills.weekly_report import run", 'import { run } from "skills/weekly_report"']


def test_an_unknown_language_is_refused() -> None:
    for call in (lambda: INDEX.search("", language="cobol"), lambda: INDEX.find("create_issue", language="cobol")):
        with pytest.raises(ValueError, match="language must be one of python, typescript, not 'cobol'"):
            call()
