"""The model of an agent, by options and by the variables of the environment."""

from pathlib import Path

import pytest

from mcp_exec_client.model_choice import DETECTED, PROVIDERS, ModelChoice, ModelNotChosen
from mcp_exec_client.model_options import DEFAULT_MODEL

PAGE = Path(__file__).parents[3] / "docs" / "agents" / "agent-loop.md"


@pytest.mark.parametrize(("variable", "provider"), DETECTED)
def test_a_variable_selects_the_provider(variable: str, provider: str) -> None:
    assert ModelChoice.read({variable: "x"}, model="m") == ModelChoice(provider=provider, model="m")  # type: ignore[arg-type]


def test_of_several_variables_the_first_of_the_table_decides() -> None:
    environment = dict.fromkeys([variable for variable, _ in DETECTED], "x")
    assert ModelChoice.read(environment) == ModelChoice(provider="anthropic", model=DEFAULT_MODEL)


def test_a_name_precedes_the_variables_and_an_option_the_name() -> None:
    environment = {"ANTHROPIC_API_KEY": "x", "LLM_PROVIDER": "azure_openai", "LLM_MODEL": "gpt-a"}
    assert ModelChoice.read(environment) == ModelChoice(provider="azure", model="gpt-a")
    assert ModelChoice.read(environment, provider="openai", model="b") == ModelChoice(provider="openai", model="b")


def test_the_model_of_azure_is_the_deployment_unless_an_option_names_one() -> None:
    environment = {"AZURE_OPENAI_API_KEY": "x", "AZURE_OPENAI_DEPLOYMENT_NAME": "gpt-a", "LLM_MODEL": "gpt-b"}
    assert ModelChoice.read(environment) == ModelChoice(provider="azure", model="gpt-a")
    assert ModelChoice.read(environment, model="gpt-c").model == "gpt-c"
    assert ModelChoice.read(environment, provider="openai").model == "gpt-b"


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"LLM_PROVIDER": "bard"}, "$LLM_PROVIDER is 'bard'; it must be one of anthropic, bedrock, vertex"),
        ({"OPENAI_API_KEY": "x"}, "--provider openai needs --model or $LLM_MODEL"),
    ],
)
def test_a_choice_that_is_not_complete_says_what_is_needed(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(ModelNotChosen) as caught:
        ModelChoice.read(environment)
    assert problem in str(caught.value)


def test_the_page_has_the_providers_and_their_variables() -> None:
    text = PAGE.read_text()
    for variable, provider in DETECTED:
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{provider}` |")]
        assert f"`{variable}`" in row
    assert all(f"| `{provider}` |" in text for provider in PROVIDERS)
