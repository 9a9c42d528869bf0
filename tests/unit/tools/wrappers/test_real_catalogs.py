"""Wrappers of the catalogs of real servers."""

import ast
import asyncio
import keyword
from collections.abc import Callable
from functools import cache
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.unit.tools.wrappers.arguments import allowed
from tests.unit.tools.wrappers.conftest import ROOT, Load, real_catalogs
from tests.unit.tools.wrappers.hostile import hostile_catalog

from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.names import camel_case, parameter_names, snake_case
from mcp_exec_tools.schemas.model_schema import build_model_schema
from mcp_exec_tools.wrappers import build_files
from mcp_exec_tools.wrappers.signature import format_signature

CATALOGS = real_catalogs()
TOOLS = [(catalog, tool) for catalog in CATALOGS for tool in catalog.tools]


@pytest.fixture(scope="module")
def wrappers(load: Load) -> Callable[[str], ModuleType]:
    return load(CATALOGS)


def called(function: Any, *positional: Any, **keywords: Any) -> Any:
    return asyncio.run(function(*positional, **keywords))


@pytest.mark.parametrize(("catalog", "tool"), TOOLS, ids=[f"{each.server}.{tool.name}" for each, tool in TOOLS])
def test_arguments_reach_the_server_unchanged_as_a_mapping_and_as_keywords(
    catalog: Catalog, tool: Tool, wrappers: Callable[[str], ModuleType]
) -> None:
    function = getattr(wrappers(catalog.module), tool.function)

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(allowed(tool.input_schema))
    def check(arguments: Any) -> None:
        wanted = {"tool": f"{catalog.server}.{tool.name}", "arguments": arguments}
        assert called(function, arguments) == wanted
        assert called(function, **arguments) == wanted

    check()


@pytest.mark.parametrize(("catalog", "tool"), TOOLS, ids=[f"{each.server}.{tool.name}" for each, tool in TOOLS])
def test_parameters_are_known_in_snake_and_in_camel_case_and_with_a_mark_behind_keywords(
    catalog: Catalog, tool: Tool, wrappers: Callable[[str], ModuleType]
) -> None:
    function = getattr(wrappers(catalog.module), tool.function)
    names = tool.input_schema.get("properties", {})

    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(allowed({**tool.input_schema, "required": list(names)}))
    def check(arguments: Any) -> None:
        for spelled in (snake_case, camel_case, lambda name: f"{name}_" if keyword.iskeyword(name) else name):
            respelled = {spelled(name): value for name, value in arguments.items()}
            assert called(function, respelled)["arguments"] == arguments
            assert called(function, **respelled)["arguments"] == arguments

    check()


@cache
def generate(server: str) -> dict[str, str]:
    return build_files([catalog for catalog in CATALOGS if catalog.server == server], stubs=True)


def list_named(schema: Any) -> set[str]:
    """Return the properties that a schema of arguments names anywhere but inside a property."""
    if isinstance(schema, list):
        return set().union(*map(list_named, schema))
    if not isinstance(schema, dict):
        return set()
    inner = [value for key, value in schema.items() if key not in ("properties", "$defs", "definitions")]
    return set(schema.get("properties", {})) | list_named(inner)


@pytest.mark.parametrize(("catalog", "tool"), TOOLS, ids=[f"{each.server}.{tool.name}" for each, tool in TOOLS])
def test_no_parameter_is_lost(catalog: Catalog, tool: Tool) -> None:
    [definition] = ast.parse(
        f"def {format_signature(tool.function, tool.input_schema, tool.returned_schema)}: ..."
    ).body
    assert isinstance(definition, ast.FunctionDef)
    names = [argument.arg for argument in definition.args.args]
    named = list_named(tool.input_schema)
    assert len(names) == len(named)
    assert set(names) == {parameter_names(named)[name] for name in named}
    assert set(build_model_schema(tool.input_schema).schema["properties"]) == named
    files = generate(catalog.server)
    stub = ast.parse(files[f"{catalog.module}/{tool.function}.pyi"])
    [*_, form] = [node for node in stub.body if isinstance(node, ast.AsyncFunctionDef)]
    assert [argument.arg for argument in form.args.args] == names
    source = files[f"{catalog.module}/{tool.function}.py"]
    assert all(f"\n        {name} (" in source for name in names)


def test_each_tool_has_its_name_in_camel_case_as_well(wrappers: Callable[[str], ModuleType]) -> None:
    for catalog, tool in TOOLS:
        package = wrappers(catalog.module)
        assert getattr(package, camel_case(tool.name)) is getattr(package, tool.function)


def test_a_description_is_the_functions_documentation(wrappers: Callable[[str], ModuleType]) -> None:
    text = wrappers("github").create_branch.__doc__
    assert text.startswith("Create a new branch in a GitHub repository")
    assert "from_branch (string, optional): Optional: source branch to create from" in text


@pytest.mark.parametrize(
    ("server", "names"),
    [
        (
            "github",
            "create_repository list_issues create_issue get_file_contents create_pull_request push_files search_code "
            "search_repositories createRepository listIssues createIssue getFileContents createPullRequest pushFiles",
        ),
        (
            "supabase",
            "list_tables execute_sql apply_migration list_migrations list_edge_functions deploy_edge_function "
            "get_advisors listTables executeSQL applyMigration getAdvisors",
        ),
        (
            "context7",
            "resolve_library_id get_library_docs get_docs_by_name compare_libraries resolveLibraryId getLibraryDocs "
            "getDocsByName compareLibraries",
        ),
    ],
)
def test_names_that_users_know_are_there(server: str, names: str, wrappers: Callable[[str], ModuleType]) -> None:
    package = wrappers(server)
    assert set(names.split()) <= set(package.__all__)
    assert all(callable(getattr(package, name)) for name in names.split())


@pytest.mark.parametrize("server", ["expenses", "github"])
def test_the_committed_wrappers_are_up_to_date(server: str) -> None:
    folder = ROOT / "servers" / server
    present = {f"{server}/{path.name}": path.read_text() for path in folder.glob("*.py*")}
    assert present == generate(server), "run `make generate`"


@pytest.mark.parametrize("seed", range(3))
def test_neither_the_order_of_tools_nor_that_of_keys_changes_anything(seed: int) -> None:
    random = Random(seed)

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            random.shuffle(items)
            # the order of properties is that of positional arguments
            return {key: in_order(each) if key == "properties" else shuffled(each) for key, each in items}
        return [shuffled(each) for each in value] if isinstance(value, list) else value

    def in_order(value: Any) -> Any:
        return {key: shuffled(each) for key, each in value.items()} if isinstance(value, dict) else shuffled(value)

    some = [*CATALOGS[:4], hostile_catalog("evil")]
    again = []
    for catalog in some:
        tools = [shuffled(tool.to_json()) for tool in catalog.tools]
        random.shuffle(tools)
        again.append(Catalog.from_tools(catalog.server, tools))
    random.shuffle(again)
    assert build_files(again, stubs=True) == build_files(some, stubs=True)
