"""Options of an execution: each has its row in one table, and everything that offers it is made from that row."""

import argparse
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict, Unpack, get_args

import pytest
from tests.support.pages import DOCS

from mcp_exec_api.code_execution import CodeExecutionSpec, Limits, Phase, UseCase
from mcp_exec_api.crd_schema import to_structural
from mcp_exec_api.files import WorkspaceMode
from mcp_exec_api.skill import SkillState
from mcp_exec_api.wire.execution_options import (
    EXECUTION_OPTIONS,
    ExecutionOption,
    RunOptions,
    WorkspaceOption,
    read_options,
)
from mcp_exec_api.wire.executions import NewExecution
from mcp_exec_api.wire.usage import UsageGrouping
from mcp_exec_client.cli.completion import find_commands, find_options, walk
from mcp_exec_client.cli.execution_options import read_given
from mcp_exec_client.cli.main import build_parser, main
from mcp_exec_client.options import build_body, suggesting
from mcp_exec_gateway.core.http.request_body import FIELDS_SET_LATER
from mcp_exec_gateway.features.mcp.code_mode.definitions import RUN_CODE, describe_arguments
from mcp_exec_gateway.features.mcp.request import McpOptions

TYPES = {
    "text": "string",
    "number": "integer",
    "choice": "string",
    "texts": "array",
    "pairs": "object",
    "object": "object",
}
WHOLE = ("context", "labels", "skillRef", "workspace")
"""Objects of the body that one option sets."""


def list_fields(schema: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each field of a body that a request can set, with its schema."""
    for name, part in schema["properties"].items():
        field = resolve(part, definitions)
        if "properties" in field and name not in WHOLE:
            yield from list_fields(field, definitions, f"{path}{name}.")
        else:
            yield f"{path}{name}", field


def resolve(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its reference, and without null next to a type."""
    if "$ref" in schema:
        return {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    for option in schema.get("anyOf", ()):
        if option.get("type") != "null":
            return {**resolve(option, definitions), **schema}
    return schema


BODY = NewExecution.model_json_schema(by_alias=True)
FIELDS = dict(list_fields(BODY, BODY["$defs"]))


def test_every_field_of_a_request_is_set_by_one_option() -> None:
    rows = [option.field for option in EXECUTION_OPTIONS.values()]
    assert sorted(rows) == sorted(FIELDS.keys() - {"code", *FIELDS_SET_LATER})


@pytest.mark.parametrize("option", EXECUTION_OPTIONS.values(), ids=EXECUTION_OPTIONS)
def test_an_option_has_the_kind_and_the_bounds_of_its_field(option: ExecutionOption) -> None:
    field = FIELDS[option.field]
    assert field["type"] == TYPES[option.kind]
    assert tuple(field.get("enum", ())) == option.choices
    if option.kind == "number":
        assert (field["minimum"], field["maximum"]) == (option.lowest, option.highest)
        assert str(field["default"]) == option.default
    if option.longest is not None:
        assert field["maxLength"] == option.longest


def test_the_use_cases_of_an_address_are_those_of_the_field() -> None:
    assert McpOptions.model_fields["use_case"].annotation == UseCase | None


def test_every_option_is_on_the_page_of_the_client() -> None:
    page = (DOCS / "services/python-client.md").read_text()
    assert [name for name in EXECUTION_OPTIONS if f"`{name}`" not in page] == []


class Grown(RunOptions, total=False):
    """A copy of the table with one row more."""

    retries: Annotated[
        int | None,
        ExecutionOption(
            help="attempts after a lost sandbox",
            default="1",
            field="limits.retries",
            highest=3,
            argument="retries",
            argument_help="attempts (default: 1)",
        ),
    ]


class GrownLimits(Limits):
    retries: int = 1


class GrownSpec(CodeExecutionSpec):
    limits: GrownLimits = GrownLimits()


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> ExecutionOption:
    option = read_options(Grown)["retries"]
    monkeypatch.setitem(EXECUTION_OPTIONS, "retries", option)
    return option


def parse(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["run", "-c", "1", *arguments])


@pytest.mark.usefixtures("grown")
def test_a_new_row_is_an_option_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    help_text = find_commands(build_parser())["run"].format_help()
    assert "--retries N" in help_text
    assert "attempts after a lost sandbox; default: 1" in " ".join(help_text.split())
    assert build_body("1", read_given(parse("--retries", "2"))) == {"code": "1", "limits": {"retries": 2}}  # type: ignore[arg-type]
    for wrong, said in (("4", "must be between 0 and 3"), ("x", "invalid number value: 'x'")):
        with pytest.raises(SystemExit):
            main(["run", "-c", "1", "--retries", wrong])
        assert f"argument --retries: {said}" in capsys.readouterr().err


@pytest.mark.usefixtures("grown")
def test_a_new_row_is_an_argument_for_models() -> None:
    arguments = describe_arguments(EXECUTION_OPTIONS)
    assert arguments["retries"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 3,
        "description": "attempts (default: 1)",
    }
    assert RUN_CODE.input_schema["properties"].keys() == {"code", *arguments} - {"retries"}


async def test_a_new_row_is_a_type_of_the_client(grown: ExecutionOption) -> None:
    @suggesting
    class Runner:
        async def run(self, code: str, **options: Unpack[Grown]) -> dict[str, Any]:
            return build_body(code, options)

    assert await Runner().run("1", retries=2, tools=None) == {"code": "1", "limits": {"retries": 2}}
    with pytest.raises(TypeError, match="retries is a number, not str"):
        await Runner().run("1", retries="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unknown option 'retry'; did you mean retries\\?"):
        await Runner().run("1", retry=2)  # type: ignore[call-arg]


def test_a_new_field_is_in_the_schema_of_the_resource() -> None:
    schema = to_structural(GrownSpec.model_json_schema(by_alias=True))
    assert schema["properties"]["limits"]["properties"]["retries"] == {"type": "integer", "default": 1}


def test_an_option_of_an_unknown_kind_is_refused() -> None:
    class Wrong(TypedDict, total=False):
        depth: Annotated[complex | None, ExecutionOption(help="depth")]

    with pytest.raises(TypeError, match="depth: options have no values of type"):
        read_options(Wrong)


def test_the_modes_of_a_workspace_are_those_of_its_field() -> None:
    assert get_args(WorkspaceOption.__annotations__["mode"]) == tuple(mode.value for mode in WorkspaceMode)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("agent", ["tools", "pool", "user", "conversation", "context"]),
        ("chat", ["tools", "pool", "user", "conversation", "context"]),
        ("mcp", ["tools", "pool", "user", "conversation"]),
        ("skills run", ["tools", "pool"]),
    ],
)
def test_each_command_has_the_options_of_an_execution_as_run_has_them(command: str, names: list[str]) -> None:
    found = next(each for each in walk(build_parser()) if each.prog == f"mcp-exec {command}")
    options = {action.dest: action for action in find_options(found)}
    for name in names:
        row = EXECUTION_OPTIONS[name]
        assert (options[name].option_strings, options[name].metavar) == ([row.flag], row.metavar)


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        ("usage", "by", get_args(UsageGrouping)),
        ("get", "phase", tuple(Phase)),
        ("skills list", "state", tuple(SkillState)),
    ],
)
def test_lists_are_selected_and_grouped_by_all_values_of_the_field(
    command: str, option: str, values: tuple[str, ...]
) -> None:
    found = next(each for each in walk(build_parser()) if each.prog == f"mcp-exec {command}")
    assert next(action.choices for action in find_options(found) if action.dest == option) == values
