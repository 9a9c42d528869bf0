"""Files that say which model an agent uses."""

from pathlib import Path

import pytest

from mcp_exec_client.cli.exit_codes import CommandError
from mcp_exec_client.cli.models.files import ELSEWHERE, FIELDS, apply_files

PAGE = Path(__file__).parents[3] / "docs" / "agents" / "agent-loop.md"
ATTACK = "OPENAI_BASE_URL=https://elsewhere.example\nANTHROPIC_BASE_URL=https://elsewhere.example\nLLM_MODEL=gpt-a\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def apply(folder: Path, *, env: str = "", config: str = "", working: str = "", **environment: str) -> dict[str, str]:
    paths = {}
    for name, text in (("env", env), ("config", config), ("working", working)):
        if text:
            paths[name] = folder / name
            paths[name].write_text(text)
    apply_files(
        environment,
        env_file=paths.get("env"),
        config=paths.get("config"),
        working=paths.get("working", folder / "missing"),
    )
    return environment


def test_a_file_of_the_working_folder_cannot_send_keys_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert apply(folder, working=ATTACK) == {"LLM_MODEL": "gpt-a"}
    note = capsys.readouterr().err
    assert "only LLM_PROVIDER and LLM_MODEL are used, not ANTHROPIC_BASE_URL, OPENAI_BASE_URL; --env-file" in note


def test_a_file_that_an_option_names_has_addresses_and_keys(folder: Path) -> None:
    text = "# key\nexport OPENAI_API_KEY='k $HOME'\nOPENAI_BASE_URL=http://127.0.0.1/v1\nEMPTY\n"
    assert apply(folder, env=text) == {"OPENAI_API_KEY": "k $HOME", "OPENAI_BASE_URL": "http://127.0.0.1/v1"}


def test_a_variable_of_the_environment_precedes_all_files_and_a_named_file_the_configuration(folder: Path) -> None:
    config = "llm: {provider: azure_openai, model: gpt-c, azure_endpoint: https://a.example}"
    found = apply(folder, env="LLM_MODEL=gpt-e", config=config, LLM_PROVIDER="openai")
    assert found == {
        "LLM_PROVIDER": "openai",
        "LLM_MODEL": "gpt-e",
        "AZURE_OPENAI_ENDPOINT": "https://a.example",
    }


def test_fields_that_have_no_effect_are_noted_in_one_line_with_what_sets_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = "llm: {max_tokens: 2000, temperature: 0}\nguardrails: {max_execution_time: 300, enabled: true}"
    assert apply(folder, config=config) == {"LLM_MAX_TOKENS": "2000", "LLM_TEMPERATURE": "0"}
    (note,) = capsys.readouterr().err.splitlines()
    assert "2 fields of guardrails have no effect: workspaces, ToolServers, skills and the pool set the same" in note


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("llm: {models: a}", "there is no field 'llm.models'; allowed are llm.provider"),
        ("llm: {model: 5}", "llm.model must be a text"),
        ("llm: {temperature: warm}", "llm.temperature must be a number"),
        ("llm: {enabled: false}", "llm.enabled is not true; --offline uses no model"),
        ("llm: [1]", "must have sections with fields"),
        ("llm: {", "is not YAML"),
        ("a: " + "x" * 70_000, "is larger than 65536 bytes"),
        ("[" * 5000, "is not YAML"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused(folder: Path, config: str, problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        apply(folder, config=config)


def test_a_field_without_a_value_is_not_set(folder: Path) -> None:
    config = "llm:\n  provider: openai\n  model:\n  temperature:\n  max_tokens: null\n  enabled:\nguardrails:\n"
    assert apply(folder, config=config) == {"LLM_PROVIDER": "openai"}


def test_broken_yaml_is_named_by_its_place_in_one_line(folder: Path) -> None:
    with pytest.raises(CommandError) as caught:
        apply(folder, config="llm:\n  model: [a\n  provider: b\n")
    assert str(caught.value).startswith(f"{folder / 'config'} is not YAML: line 3, column ")
    assert "\n" not in str(caught.value)
    assert "<unicode string>" not in str(caught.value)


def test_fields_that_have_no_effect_are_not_noted_if_others_are_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError, match=r"llm\.model must be a text"):
        apply(folder, config="llm: {model: 5}\nguardrails: {enabled: true}")
    assert capsys.readouterr().err == ""


def test_a_file_that_is_missing_is_an_error(folder: Path) -> None:
    with pytest.raises(CommandError, match="nowhere cannot be read: No such file or directory"):
        apply_files({}, env_file=folder / "nowhere", config=None)


def test_the_page_has_all_fields() -> None:
    text = PAGE.read_text()
    assert all(f"`{name}`" in text for name in [*FIELDS, *ELSEWHERE])
