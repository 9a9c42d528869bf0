"""`mcp-exec servers import` of what people have: the configuration of a desktop client."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_client.__main__ import main

GITHUB = {"command": "github-mcp", "args": ["stdio", "--port", "$(PORT)"], "env": {"GITHUB_TOKEN": "ghp_secret"}}
LINEAR = {"url": "https://mcp.linear.app/mcp", "headers": {"Authorization": "Bearer lin_secret", "X-Team": "t_secret"}}


class Importing:
    """The command with a configuration."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def __call__(self, content: Any, *options: str, name: str = "github") -> tuple[dict[str, Any], str]:
        """Return spec and messages."""
        self.path.write_text(content if isinstance(content, str) else json.dumps(content))
        main(["servers", "import", name, "--from-file", str(self.path), *options])
        said = self._capsys.readouterr()
        assert "secret" not in said.out.lower().replace("secretkeyref", "")
        assert "_secret" not in said.err
        manifest: dict[str, Any] = yaml.safe_load(said.out)
        assert manifest["metadata"]["name"] == name
        ToolServerSpec.model_validate(manifest["spec"])
        return manifest["spec"], said.err

    def refusal(self, content: Any, *options: str, name: str = "github") -> str:
        """Return the error."""
        with pytest.raises(SystemExit) as ended:
            self(content, *options, name=name)
        assert ended.value.code
        said = self._capsys.readouterr()
        assert (said.out, "_secret" in said.err) == ("", False)
        return said.err


@pytest.fixture
def importing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Importing:
    return Importing(tmp_path / "config.json", capsys)


PLACES: dict[str, Any] = {
    "claude": {"mcpServers": {"github": GITHUB, "linear": LINEAR}},
    "code": {"inputs": [{"id": "token"}], "servers": {"github": {"type": "stdio", **GITHUB}, "linear": LINEAR}},
    "code settings": {"editor.fontSize": 12, "mcp": {"servers": {"github": GITHUB, "linear": LINEAR}}},
    "zed": {"context_servers": {"github": {"command": {"path": "github-mcp", **GITHUB, "command": None}}}},
}
PLACES["zed"]["context_servers"]["github"]["command"].pop("command")
IMAGE = ("--image", "registry.test/github:1")


@pytest.mark.parametrize("content", PLACES.values(), ids=PLACES)
def test_a_command_runs_in_an_image_with_its_credentials_in_a_secret(importing: Importing, content: Any) -> None:
    spec, said = importing(content, *IMAGE, "-n", "agents")
    assert spec["stdio"] == {
        "image": "registry.test/github:1",
        "command": ["github-mcp", "stdio", "--port", "$$(PORT)"],
        "env": [{"name": "GITHUB_TOKEN", "secretKeyRef": {"name": "github-credentials", "key": "GITHUB_TOKEN"}}],
    }
    command = "  kubectl create secret generic github-credentials -n agents --from-literal=GITHUB_TOKEN=..."
    assert said.splitlines()[-1] == command


def test_an_address_has_its_headers_with_their_schemes(importing: Importing) -> None:
    spec, said = importing({"mcpServers": {"linear": LINEAR}}, name="tickets")
    assert spec["url"] == "https://mcp.linear.app/mcp"
    assert spec["headers"] == [
        {
            "name": "Authorization",
            "prefix": "Bearer ",
            "secretKeyRef": {"name": "tickets-credentials", "key": "Authorization"},
        },
        {"name": "X-Team", "secretKeyRef": {"name": "tickets-credentials", "key": "X-Team"}},
    ]
    assert "--from-literal=Authorization=... --from-literal=X-Team=..." in said


def test_a_secret_that_exists_is_used(importing: Importing) -> None:
    options = (*IMAGE, "--secret-env", "GITHUB_TOKEN=mine/token", "--egress", "10.0.0.0/8", "--only", "list_issues")
    spec, said = importing({"mcpServers": {"github": GITHUB}}, *options)
    assert spec["stdio"]["env"] == [{"name": "GITHUB_TOKEN", "secretKeyRef": {"name": "mine", "key": "token"}}]
    assert (spec["allow"], said) == (["list_issues"], "")
    assert spec["stdio"]["egress"][0]["to"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]


def test_comments_trailing_commas_and_a_mark_are_accepted(importing: Importing) -> None:
    content = """\ufeff{
      // my servers
      "mcpServers": { /* all
        of them */ "docs": {"url": "https://docs.test/mcp", /* "headers": {} */},
      },
    }"""
    assert importing(content, name="docs")[0] == {"url": "https://docs.test/mcp"}


def test_keys_without_a_field_are_named(importing: Importing) -> None:
    _, said = importing({"mcpServers": {"github": {**GITHUB, "cwd": "/home/me", "envFile": ".env"}}}, *IMAGE)
    assert "left out: cwd" in said
    assert "left out: envFile" in said


REFUSED: dict[str, tuple[Any, str]] = {
    "several": ({"a": LINEAR, "b": LINEAR}, "is the configuration of 2 servers: a, b; NAME must be one of them"),
    "none": ({}, "configures no server"),
    "not an object": ({"github": 3}, "it is not an object but int"),
    "neither": ({"github": {"disabled": True}}, "it has disabled; expected is command with args and env, or url"),
    "both": ({"github": {**GITHUB, **LINEAR}}, "it has url and command; one of them is expected"),
    "sse": ({"github": {**LINEAR, "type": "sse"}}, "its type is sse; a ToolServer uses streamable HTTP"),
    "local": ({"github": {"url": "http://localhost:3000/mcp"}}, "is at localhost, this computer"),
    "loopback": ({"github": {"url": "http://127.0.0.1:3000/mcp"}}, "is at 127.0.0.1, this computer"),
    "query": ({"github": {"url": "https://a.test/mcp?key=k_secret"}}, "a query, which may be a credential"),
    "password": ({"github": {"url": "https://me:k_secret@a.test/mcp"}}, "a password or a query"),
    "scheme": ({"github": {"url": "ws://a.test"}}, "its url must be http://HOST[:PORT]/PATH"),
    "docker": ({"github": {"command": "docker", "args": ["run", "x"]}}, "it runs docker; a ToolServer names image"),
    "npx": ({"github": {"command": "npx", "args": ["-y", "a"]}}, "npx downloads it at each start"),
    "windows": ({"github": {"command": "C:\\\\npx.cmd", "args": []}}, "downloads it at each start"),
    "no image": ({"github": GITHUB}, "--image must name an image that has the server and Python 3"),
    "args": ({"github": {"command": "a", "args": [1]}}, "args a list of at most 63 texts"),
    "env": ({"github": {"command": "a", "env": {"A B": "1"}}}, "'A B', which is not the name of a variable"),
    "headers": ({"github": {"url": "https://a.test", "headers": ["a"]}}, "headers must be an object"),
    "header": ({"github": {"url": "https://a.test", "headers": {"A B": ""}}}, "'A B', which is not the name of a"),
}


@pytest.mark.parametrize(("servers", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_server_that_cannot_be_imported_is_refused_with_what_is_expected(
    importing: Importing, servers: Any, problem: str
) -> None:
    assert problem in importing.refusal({"mcpServers": servers})


def test_other_files_are_refused_with_what_they_have_and_what_is_expected(importing: Importing) -> None:
    said = importing.refusal({"functions": [], "more": 1})
    assert "it is an object with functions, more; expected is a list of tools" in said
    assert 'the configuration of a client: {"mcpServers": {...}}' in said
    assert "it is a JSON str" in importing.refusal('"tools"')
    assert "config.json is not valid JSON" in importing.refusal("{")
    assert "--url is for definitions" in importing.refusal({"mcpServers": {"a": LINEAR}}, "--url", "http://a.test")
