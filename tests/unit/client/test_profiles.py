"""Profiles, and which gateway or API server a command uses."""

import argparse
from pathlib import Path

import pytest

from mcp_exec_client.cli.connection import KUBECTL, Connection, resolve_connection
from mcp_exec_client.cli.exit_codes import CommandError
from mcp_exec_client.cli.main import build_parser, main
from mcp_exec_client.cli.profiles import read_profiles

KEYS = """
current = "dev"
[profiles.dev]
gateway = "https://dev.example.com/"
api-key = "dev-key"
namespace = "agents"
[profiles.prod]
gateway = "https://prod.example.com"
api-key = "prod-key"
"""


@pytest.fixture
def file(no_profile: Path) -> Path:
    no_profile.parent.mkdir(parents=True)
    no_profile.write_text(KEYS)
    no_profile.chmod(0o600)
    return no_profile


def options(*arguments: str, program: str = "mcp-exec") -> argparse.Namespace:
    return build_parser(program).parse_args(["get", *arguments])


def resolve(*arguments: str, program: str = "mcp-exec") -> tuple[str | None, str | None, str | None]:
    found = resolve_connection(options(*arguments, program=program))
    return found.gateway, found.api_key, found.namespace


def test_the_current_profile_is_used_unless_another_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve() == ("https://dev.example.com/", "dev-key", "agents")
    assert resolve("--profile", "prod") == ("https://prod.example.com", "prod-key", None)
    monkeypatch.setenv("MCP_EXEC_PROFILE", "prod")
    assert resolve()[1] == "prod-key"
    assert resolve("--profile", "dev")[1] == "dev-key"


def test_options_precede_the_environment_and_that_precedes_the_profile(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_API_KEY", "env-key")
    monkeypatch.setenv("MCP_EXEC_NAMESPACE", "env")
    assert resolve() == ("https://dev.example.com/", "env-key", "env")
    monkeypatch.setenv("MCP_EXEC_GATEWAY", "https://env.example.com")
    assert resolve() == ("https://env.example.com", "env-key", "env")
    assert resolve("--gateway", "http://g", "--api-key", "k", "-n", "ns") == ("http://g", "k", "ns")
    assert resolve("--profile", "prod") == ("https://prod.example.com", "prod-key", "env")


def test_the_key_of_a_profile_is_not_sent_to_another_gateway(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("--gateway", "https://evil.example.com") == ("https://evil.example.com", None, None)
    assert resolve("--gateway", "https://evil.example.com", "--profile", "dev")[1] is None
    assert resolve("--gateway", "https://dev.example.com", "--profile", "dev")[1] == "dev-key"
    monkeypatch.setenv("MCP_EXEC_GATEWAY", "https://evil.example.com")
    assert resolve()[1] is None


def test_kubectl_s_plugin_uses_a_gateway_only_by_option(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", "https://env.example.com")
    monkeypatch.setenv("KUBECONFIG", "/kube/config")
    found = resolve_connection(options("-n", "team", "--kube-context", "c", program=KUBECTL))
    assert found == Connection(kubeconfig=Path("/kube/config"), kube_context="c", namespace="team")
    assert resolve("--profile", "prod", program=KUBECTL)[0] == "https://prod.example.com"


def test_mcp_exec_reads_no_kubeconfig_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/kube/config")
    assert resolve_connection(options()) == Connection()
    assert resolve_connection(options("--kubeconfig", "f")) == Connection(kubeconfig=Path("f"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kubeconfig", "f", "--gateway", "http://g"], "choose an API server or a gateway"),
        (["--kube-context", "c"], "--kube-context needs --kubeconfig"),
        (["--gateway", "localhost:8080"], "must begin with http:// or https://"),
        (["--profile", "none"], "there is no profile 'none'"),
    ],
)
def test_contradictions_are_refused(file: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        resolve(*arguments)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profiles = 3", "`profiles` must be a table"),
        ("[profiles.a]\ngateway = 3", "must have strings only"),
        ("[profiles.a]\ntoken = 'x'", "'token' is unknown; allowed are api-key, gateway, namespace"),
        ("active = 'a'", "'active' is unknown; allowed are current, profiles"),
        ("not toml", "is not valid TOML"),
        ("#" + "x" * 300_000, "more than 262144 bytes"),
    ],
)
def test_a_wrong_profile_file_is_refused_by_its_name(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(CommandError, match=said) as error:
        read_profiles(file)
    assert str(file) in str(error.value)


def test_a_file_with_keys_that_others_may_read_is_refused(file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(CommandError, match=f"chmod 600 {file}"):
        resolve()


def test_profiles_are_written_for_their_owner_only_and_listed_without_keys(
    no_profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.readline", lambda limit: 'key"\\\n')
    main(["profile", "set", "a", "--gateway", "https://a.example.com"])
    main(["profile", "set", "b", "--gateway", "https://b.example.com", "--api-key", "kb", "-n", "agents"])
    main(["profile", "set", "b", "--gateway", "https://c.example.com"])
    main(["profile", "use", "b"])
    assert no_profile.stat().st_mode & 0o777 == 0o600
    assert list(no_profile.parent.iterdir()) == [no_profile]
    capsys.readouterr()
    main(["profile", "list"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "          a      https://a.example.com               yes",
        "*         b      https://c.example.com   agents      yes",
    ]
    assert read_profiles(no_profile).profiles["a"].api_key == 'key"\\'
    assert resolve() == ("https://c.example.com", "kb", "agents")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "a b", "--gateway", "http://g"], "is not a profile name"),
        (["set", "new"], "a new profile new needs --gateway"),
        (["set", "new", "--gateway", "g"], "must begin with http:// or https://"),
        (["use", "none"], "there is no profile 'none'"),
    ],
)
def test_what_a_profile_can_not_be_is_refused(
    file: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.readline", lambda limit: "k\n")
    with pytest.raises(SystemExit) as ended:
        main(["profile", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert file.read_text() == KEYS
