"""`mcp-exec servers import`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.pages import steps

from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_client.__main__ import main

ROOT = Path(__file__).parents[3]
SHOP = ROOT / "examples" / "own_tools" / "shop.py"
TOOLS = ROOT / "examples" / "own_tools" / "tools.json"
URL = "http://shop.web.svc:8000/tools"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def import_tools(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    main(["servers", "import", "shop", *map(str, arguments)])
    manifest: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    ToolServerSpec.model_validate(manifest["spec"])
    return manifest


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path, name: str = "shop") -> str:
    with pytest.raises(SystemExit) as ended:
        main(["servers", "import", name, *map(str, arguments)])
    printed = capsys.readouterr()
    assert ended.value.code
    assert not printed.out
    return printed.err


def settings_of(manifest: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(manifest["spec"]["stdio"]["command"][3])
    return settings


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    return tmp_path / "tools.json"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return tmp_path / "tools.py"


ENTRY = {"name": "weather", "description": "Return the weather.", "inputSchema": SCHEMA}
FORMS: dict[str, Any] = {
    "anthropic": {"name": "weather", "description": "Return the weather.", "input_schema": SCHEMA},
    "anthropic-custom": {
        "type": "custom",
        "name": "weather",
        "description": "Return the weather.",
        "input_schema": SCHEMA,
        "cache_control": {"type": "ephemeral"},
    },
    "openai-chat": {
        "type": "function",
        "function": {"name": "weather", "description": "Return the weather.", "parameters": SCHEMA, "strict": True},
    },
    "openai-responses": {
        "type": "function",
        "name": "weather",
        "description": "Return the weather.",
        "parameters": SCHEMA,
    },
    "mcp": ENTRY,
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_becomes_the_same_tool(capsys: pytest.CaptureFixture[str], definitions: Path, form: str) -> None:
    definitions.write_text(json.dumps([FORMS[form]]))
    manifest = import_tools(capsys, "--from-file", definitions, "--url", URL + "/")
    assert settings_of(manifest) == {"server": "shop", "url": URL, "tools": [ENTRY]}


@pytest.mark.parametrize(
    "wrap", [lambda each: {"tools": each}, lambda each: {"jsonrpc": "2.0", "id": 1, "result": {"tools": each}}]
)
def test_an_answer_of_tools_list_keeps_output_schemas_and_annotations(
    capsys: pytest.CaptureFixture[str], definitions: Path, wrap: Any
) -> None:
    entry = {**ENTRY, "outputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}}
    definitions.write_text(json.dumps(wrap([entry])))
    assert settings_of(import_tools(capsys, "--from-file", definitions, "--url", URL))["tools"] == [entry]


def test_a_function_without_parameters_needs_no_schema(capsys: pytest.CaptureFixture[str], definitions: Path) -> None:
    definitions.write_text(json.dumps([{"type": "function", "function": {"name": "ping"}}]))
    (tool,) = settings_of(import_tools(capsys, "--from-file", definitions, "--url", URL))["tools"]
    assert tool["inputSchema"] == {"type": "object", "properties": {}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"a": schema}
    return schema


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("weather", "number 1: it is not an object but str"),
        ({"input_schema": SCHEMA}, "number 1: it has no name"),
        ({"name": 5}, "number 1: it has no name"),
        ({"name": "a b"}, "a b: its name must have 1 to 128 letters, digits, '_', '-' and '.'"),
        ({"name": ".."}, "..: its name must have 1 to 128"),
        ({"name": "a" * 129}, "its name must have 1 to 128"),
        ({"type": "web_search_20250305", "name": "web_search"}, "web_search: its type is 'web_search_20250305'"),
        ({"type": "custom", "name": "grammar"}, "grammar: a custom tool takes free text"),
        ({"name": "x", "input_schema": {}, "parameters": {}}, "x: it has input_schema and parameters"),
        ({"name": "x", "input_schema": []}, "x: its input_schema is not an object but list"),
        ({"name": "x", "inputSchema": {"type": "string"}}, "x: its schema has the type 'string'; allowed is 'object'"),
        ({"name": "x", "inputSchema": {"properties": []}}, "x: its schema's properties are not an object but list"),
        ({"name": "x", "inputSchema": nested(40)}, "x: its inputSchema is nested deeper than 32 levels"),
        ({"name": "x", "inputSchema": {"a": "b" * 70_000}}, "x: its inputSchema has 70009 characters"),
        ({"name": "x", "outputSchema": nested(40)}, "x: its outputSchema is nested deeper than 32 levels"),
        ({"name": "x", "description": 5}, "x: its description is not a text but int"),
        ({"name": "x", "description": "a" * 20_000}, "x: its description has 20000 characters; at most 16384"),
        ({"name": "x", "description": "\ud800"}, "x: its description has half of a surrogate pair"),
    ],
)
def test_a_tool_that_cannot_be_imported_is_named_with_the_reason(
    capsys: pytest.CaptureFixture[str], definitions: Path, tool: Any, said: str
) -> None:
    definitions.write_text(json.dumps([tool, ENTRY]))
    assert said in refusal(capsys, "--from-file", definitions, "--url", URL)
    manifest = import_tools(capsys, "--from-file", definitions, "--url", URL, "--skip-invalid")
    assert settings_of(manifest)["tools"] == [ENTRY]


def test_the_second_of_two_tools_with_one_name_is_refused(
    capsys: pytest.CaptureFixture[str], definitions: Path
) -> None:
    definitions.write_text(json.dumps([ENTRY, ENTRY]))
    assert "weather: an earlier tool has the same name" in refusal(capsys, "--from-file", definitions, "--url", URL)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'[{"name": "x", "inputSchema": {"maximum": NaN}}]', "NaN is not allowed"),
        (b'{"functions": []}', "has no list of tools"),
        (b"[]", "has no tools to import"),
        (b"[" + b",".join([b"{}"] * 501) + b"]", "501 tools are given, but at most 500 are allowed"),
        (b" " * (4 * 1024 * 1024 + 1), "is larger than 4194304 bytes"),
        (None, "No such file"),
    ],
)
def test_a_file_without_definitions_is_refused(
    capsys: pytest.CaptureFixture[str], definitions: Path, content: bytes | None, said: str
) -> None:
    if content is not None:
        definitions.write_bytes(content)
    assert said in refusal(capsys, "--from-file", definitions, "--url", URL)


def test_definitions_that_no_command_line_takes_are_refused(
    capsys: pytest.CaptureFixture[str], definitions: Path
) -> None:
    tools = [{"name": f"tool{number}", "description": "a" * 10_000} for number in range(20)]
    definitions.write_text(json.dumps(tools))
    assert "at most 98304 are allowed" in refusal(capsys, "--from-file", definitions, "--url", URL)
    few = import_tools(capsys, "--from-file", definitions, "--url", URL, "--only", "tool3", "--only", "tool7")
    assert [tool["name"] for tool in settings_of(few)["tools"]] == ["tool3", "tool7"]


@pytest.mark.parametrize(
    ("url", "egress"),
    [
        (
            "http://10.1.2.3:8000/tools",
            [{"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"protocol": "TCP", "port": 8000}]}],
        ),
        (
            "http://[fd00::1]/tools",
            [{"to": [{"ipBlock": {"cidr": "fd00::1/128"}}], "ports": [{"protocol": "TCP", "port": 80}]}],
        ),
    ],
)
def test_the_server_reaches_an_address_alone(
    capsys: pytest.CaptureFixture[str], url: str, egress: list[dict[str, Any]]
) -> None:
    manifest = import_tools(capsys, "--from-file", TOOLS, "--url", url)
    assert manifest["spec"]["stdio"]["egress"] == egress


def test_the_server_reaches_a_services_namespace_and_other_names_at_their_port(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service, dns = import_tools(capsys, "--from-file", TOOLS, "--url", URL)["spec"]["stdio"]["egress"]
    assert service == {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}]}
    assert {"protocol": "UDP", "port": 53} in dns["ports"]
    outside, _ = import_tools(capsys, "--from-file", TOOLS, "--url", "https://shop.example/t")["spec"]["stdio"][
        "egress"
    ]
    assert outside["ports"] == [{"protocol": "TCP", "port": 443}]
    arguments = ("--from-file", TOOLS, "--url", "https://shop.example/t", "--egress", "10.20.0.0/16")
    narrow, _ = import_tools(capsys, *arguments)["spec"]["stdio"]["egress"]
    assert narrow == {"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}]}


def test_public_functions_of_a_file_are_tools_and_the_file_is_not_run(
    capsys: pytest.CaptureFixture[str], module: Path
) -> None:
    module.write_text(
        "raise SystemExit('run')\n"
        "def one(a: int) -> int: return a\n"
        "async def two(*, b: str = 'x'): ...\n"
        "def _private(): ...\n"
        "class Thing:\n    def method(self): ...\n"
    )
    manifest = import_tools(capsys, "--from-python", module, "-n", "agents", "--image", "registry/shop:1")
    assert manifest["metadata"] == {"name": "shop", "namespace": "agents"}
    assert settings_of(manifest) == {"server": "shop", "file": "tools.py", "tools": ["one", "two"]}
    stdio = manifest["spec"]["stdio"]
    assert (stdio["image"], stdio["command"][4]) == ("registry/shop:1", module.read_text())
    assert "egress" not in stdio


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(*args): ...", "f: its parameter *args has no fixed name"),
        ("def f(**more): ...", "f: its parameter **more has no fixed name"),
        ("def f(a, /): ...", "f: its parameter a is positional only"),
        ("def f(_a): ...", "f: its parameter _a begins with '_'"),
        ("def größe(): ...", "its name must have 1 to 128 ASCII letters"),
        ("def f(:", "is not valid Python, line 1"),
        ("def f(): ...\0", "is not valid Python"),
        ("x = " + "(" * 10_000, "is not valid Python"),
        ("x = 1", "has no tools to import"),
        ("#" * 65_537, "is larger than 65536 bytes"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_named_with_the_reason(
    capsys: pytest.CaptureFixture[str], module: Path, source: str, said: str
) -> None:
    module.write_text(source)
    assert said in refusal(capsys, "--from-python", module)


def test_what_the_kubelet_would_replace_in_a_command_is_escaped(
    capsys: pytest.CaptureFixture[str], module: Path
) -> None:
    module.write_text("def f() -> str: return '$(HOME) costs $5, $$'\n")
    source = import_tools(capsys, "--from-python", module)["spec"]["stdio"]["command"][4]
    assert source == "def f() -> str: return '$$(HOME) costs $$5, $$$$'\n"


def test_secrets_become_variables(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--secret-env", "DB_PASSWORD=shop/password", "--secret-env", "APPLICATION_TOKEN=web.example/t_1")
    assert import_tools(capsys, "--from-python", SHOP, *arguments)["spec"]["stdio"]["env"] == [
        {"name": "DB_PASSWORD", "secretKeyRef": {"name": "shop", "key": "password"}},
        {"name": "APPLICATION_TOKEN", "secretKeyRef": {"name": "web.example", "key": "t_1"}},
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from-python", SHOP, "--url", URL], "--url is allowed only with --from-file"),
        (["--from-file", TOOLS], "--from-file need --url"),
        (["--from-file", TOOLS, "--url", "shop:8000"], "it must be http://HOST"),
        (["--from-file", TOOLS, "--url", "http://u:secret@h/"], "--url has a password, query or fragment"),
        (["--from-file", TOOLS, "--url", "http://h:99999/"], "it must be http://HOST"),
        (["--from-file", TOOLS, "--url", "http://h/\x1b"], "it must be http://HOST"),
        (["--from-python", SHOP, "--egress", "10.0.0.1/8"], "--egress 10.0.0.1/8"),
        (["--from-python", SHOP, "--secret-env", "MCP_EXEC_PORT=a/b"], "--secret-env MCP_EXEC_PORT"),
        (["--from-python", SHOP, "--secret-env", "A=b"], "it must be VARIABLE=SECRET/KEY"),
        (["--from-python", SHOP, "--secret-env", "A=../b"], "it must be VARIABLE=SECRET/KEY"),
        (["--from-python", SHOP, "-n", "Agents"], "'Agents' is not a namespace"),
        (["--from-python", SHOP, "--only", "refund"], "has no tool refund; it has get_order, list_orders, remind"),
    ],
)
def test_wrong_options_are_explained(
    capsys: pytest.CaptureFixture[str], arguments: list[str | Path], said: str
) -> None:
    assert said in refusal(capsys, *arguments)


@pytest.mark.parametrize("name", ["Shop", "a" * 61, "shop-", "shop_tools", ""])
def test_a_name_that_no_toolserver_can_have_is_refused(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert "is not a name" in refusal(capsys, "--from-python", SHOP, name=name)


def test_json_and_yaml_have_the_same_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    as_yaml = import_tools(capsys, "--from-python", SHOP)
    assert import_tools(capsys, "--from-python", SHOP, "-o", "json") == as_yaml


def test_the_source_is_readable_in_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    main(["servers", "import", "shop", "--from-python", str(SHOP)])
    printed = capsys.readouterr()
    assert "\n      def get_order(order_id: str) -> Order:\n" in printed.out
    assert printed.err == "shop: 3 tools\n"


def test_the_number_of_tools_and_an_estimate_of_their_tokens_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    main(["servers", "import", "shop", "--from-file", str(TOOLS), "--url", URL])
    assert capsys.readouterr().err.startswith("shop: 3 tools, whose definitions have about ")


def test_the_pages_commands_are_valid(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    commands = [step.command for step in steps("coming-from/tool-loop.md") if step.command.startswith("mcp-exec ")]
    assert len(commands) == 2
    for command in commands:
        words = command.partition(" | ")[0].partition(" > ")[0].split()
        main(words[1:])
        ToolServerSpec.model_validate(yaml.safe_load(capsys.readouterr().out)["spec"])
