"""The generated pages of docs/reference: they are those of the types, and miss nothing of them."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hack.reference.__main__ import FOLDER, build_pages, build_site_pages
from hack.reference.markdown import build_table
from hack.reference.metrics import build_registries, list_metrics
from hack.reference.resources import EXAMPLES, SPECS, read_example
from hack.reference.schema import describe, list_fields

from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.reasons.pool import PoolReason
from mcp_exec_client.cli.completion import find_commands, find_options, walk
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.main import build_parser

ROOT = Path(__file__).parents[3]
PAGES = build_pages()
SITE_PAGES = build_site_pages()
KINDS = {each["spec"]["names"]["kind"]: each["spec"] for each in build_definitions().values()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name], "run `make generate`"


def test_pages_that_show_another_file_or_the_help_of_commands_are_not_committed() -> None:
    assert {str(path) for path in SITE_PAGES if (ROOT / path).exists()} == set()


def test_the_page_of_the_command_line_has_every_command_with_its_options() -> None:
    page, commands = SITE_PAGES["docs/reference/command-line.md"], list(walk(build_parser()))
    for command in (each for each in commands if not find_commands(each)):
        assert f"\n## {command.prog}\n" in page
        for action in find_options(command):
            assert all(
                f"`{name}" in page for name in action.option_strings if name.startswith("--") and name != "--help"
            )
    assert [code.value for code in ExitCode if f"| {code.value} | {code.meaning} |" not in page] == []


def test_the_page_of_the_http_api_has_every_route_and_body() -> None:
    page, document = SITE_PAGES["docs/reference/http-api.md"], json.loads((FOLDER / "openapi.json").read_text())
    for path, methods in document["paths"].items():
        assert [method for method in methods if f"\n### {method.upper()} {path}\n" not in page] == []
    assert [name for name in document["components"]["schemas"] if f"\n### {name}\n" not in page] == []


def test_every_kind_has_a_page_with_an_example_of_its_own_type() -> None:
    assert SPECS.keys() == KINDS.keys()
    assert {path.stem for path in EXAMPLES.iterdir()} == {kind.lower() for kind in KINDS}
    for kind in KINDS:
        assert read_example(kind) in SITE_PAGES[f"docs/reference/resources/{kind.lower()}.md"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_explains_every_field_and_column_of_its_kind(kind: str) -> None:
    page = SITE_PAGES[f"docs/reference/resources/{kind.lower()}.md"]
    for version in KINDS[kind]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]["properties"]
        fields = [*list_fields(schema["spec"]), *list_fields(schema["status"])]
        assert len(fields) > 5
        assert [path for path, *_ in fields if f"| {path} |" not in page] == []
        assert [path for path, _, _, meaning in fields if not meaning] == []
        assert [column["name"] for column in version["additionalPrinterColumns"] if column["name"] not in page] == []


def test_every_reason_and_every_metric_is_explained() -> None:
    for reason in (*Reason, *PoolReason, *EventReason):
        assert not reason or f"`{reason}`" in PAGES["reasons.md"]
        assert not reason or reason.meaning
    for registry in build_registries().values():
        for name, _, _, text in list_metrics(registry):
            assert f"`{name}" in PAGES["metrics.md"]
            assert text


def test_a_metric_can_only_be_declared_where_the_page_finds_it() -> None:
    kinds = {"Counter", "Enum", "Gauge", "Histogram", "Info", "Summary"}
    found: list[str] = []
    for process in build_registries():
        for path in sorted((ROOT / process).rglob("*.py")):
            tree = ast.parse(path.read_text())
            own = {
                name.asname or name.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prometheus_client")
                for name in node.names
                if name.name in kinds
            } | {f"prometheus_client.{kind}" for kind in kinds}
            calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            found += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(own & calls)]
    assert found == [], "declare metrics in a subclass of MetricsBase"


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"description": "A.", "minLength": 1, "maxLength": 9}, "A. At least 1 character, at most 9 characters."),
        ({"description": "A sort.", "enum": ["", "A"]}, 'A sort. One of `""`, `A`.'),
        ({"x-kubernetes-validations": [{"rule": "a < b", "message": "b is more"}]}, "Rule: b is more."),
    ],
)
def test_a_field_says_what_it_may_be(schema: dict[str, Any], shown: str) -> None:
    assert describe(schema) == shown


def test_fields_of_lists_and_maps_have_a_path() -> None:
    item = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "description": "A."}}}
    schema = {
        "properties": {"x": {"type": "array", "items": item}, "y": {"type": "object", "additionalProperties": item}}
    }
    assert [(path, kind, default) for path, kind, default, _ in list_fields(schema)] == [
        ("`x`", "list of object", ""),
        ("`x[].a`", "string", "required"),
        ("`y`", "map to object", ""),
        ("`y.NAME.a`", "string", "required"),
    ]


def test_a_cell_cannot_end_its_row() -> None:
    assert build_table(("a",), [("x | y\nz <b>",)]).splitlines()[2] == "| x \\| y z &lt;b> |"
