"""The model of an agent: by its provider's name, or by the variables of the environment.

Addresses and keys come from the SDKs' own variables alone.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from mcp_exec_client.model_options import DEFAULT_MODEL, Effort, Thinking
from mcp_exec_client.network import A_VALID_ADDRESS, reach_directly

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from mcp_exec_client.agent.providers.model import ModelProvider

ProviderName = Literal["anthropic", "bedrock", "vertex", "foundry", "openai", "openai-responses", "azure"]
PROVIDERS: Final[tuple[ProviderName, ...]] = get_args(ProviderName)
DETECTED: Final[tuple[tuple[str, ProviderName], ...]] = (
    ("ANTHROPIC_API_KEY", "anthropic"),
    ("ANTHROPIC_AUTH_TOKEN", "anthropic"),
    ("ANTHROPIC_FOUNDRY_API_KEY", "foundry"),
    ("ANTHROPIC_VERTEX_PROJECT_ID", "vertex"),
    ("AWS_BEARER_TOKEN_BEDROCK", "bedrock"),
    ("AZURE_OPENAI_API_KEY", "azure"),
    ("OPENAI_API_KEY", "openai"),
)
"""Variables that select a provider if none is named; the first that is set decides."""
PROVIDER_VARIABLE: Final = "LLM_PROVIDER"
MODEL_VARIABLE: Final = "LLM_MODEL"
TEMPERATURE_VARIABLE: Final = "LLM_TEMPERATURE"
ANSWER_VARIABLE: Final = "LLM_MAX_TOKENS"
_OTHER_NAMES: Final = {"azure_openai": "azure"}
_DEFAULT_MODELS: Final[dict[str, str]] = {"anthropic": DEFAULT_MODEL, "foundry": DEFAULT_MODEL}
_NEEDS: Final[dict[ProviderName, dict[str, tuple[str, ...]]]] = {
    "anthropic": {"$ANTHROPIC_API_KEY": ("ANTHROPIC_API_KEY",)},
    "bedrock": {
        "$AWS_REGION": ("AWS_REGION",),
        "$AWS_BEARER_TOKEN_BEDROCK or other AWS credentials": ("AWS_BEARER_TOKEN_BEDROCK",),
    },
    "vertex": {
        "$CLOUD_ML_REGION": ("CLOUD_ML_REGION",),
        "$ANTHROPIC_VERTEX_PROJECT_ID": ("ANTHROPIC_VERTEX_PROJECT_ID",),
    },
    "foundry": {
        "$ANTHROPIC_FOUNDRY_API_KEY": ("ANTHROPIC_FOUNDRY_API_KEY",),
        "$ANTHROPIC_FOUNDRY_RESOURCE (or $ANTHROPIC_FOUNDRY_BASE_URL)": (
            "ANTHROPIC_FOUNDRY_RESOURCE",
            "ANTHROPIC_FOUNDRY_BASE_URL",
        ),
    },
    "openai": {"$OPENAI_API_KEY": ("OPENAI_API_KEY",)},
    "openai-responses": {"$OPENAI_API_KEY": ("OPENAI_API_KEY",)},
    "azure": {
        "$AZURE_OPENAI_API_KEY": ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
        "$AZURE_OPENAI_ENDPOINT (or llm.azure_endpoint)": ("AZURE_OPENAI_ENDPOINT",),
    },
}
"""What each provider needs, and the variables that give it; one of them has to be set."""
_ADDRESSES: Final[dict[ProviderName, str]] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "foundry": "ANTHROPIC_FOUNDRY_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "openai-responses": "OPENAI_BASE_URL",
    "azure": "AZURE_OPENAI_ENDPOINT",
}
_AZURE_VERSION: Final = "2024-10-21"
"""Version of Azure's API if none is set: the newest dated one that is no preview."""


class ModelNotChosen(ValueError):
    """A provider or model that is missing or unknown. The text says what is needed."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A provider and the name of its model."""

    provider: ProviderName
    model: str
    by_default: bool = False
    """Whether nothing names the provider."""

    @classmethod
    def read(
        cls,
        environment: Mapping[str, str],
        *,
        provider: str | None = None,
        model: str | None = None,
        option: str = "--provider",
    ) -> "ModelChoice":
        """Return the choice of these names, which `option` gave, else that of the environment.

        Raises ModelNotChosen.
        """
        source = option if provider else f"${PROVIDER_VARIABLE}"
        given = provider or environment.get(PROVIDER_VARIABLE) or ""
        named = _OTHER_NAMES.get(given, given)
        found = next((each for variable, each in DETECTED if environment.get(variable)), None)
        chosen = next((each for each in PROVIDERS if each == (named or found or "anthropic")), None)
        if chosen is None:
            raise ModelNotChosen(f"{source} is {given[:40]!r}; it must be one of {', '.join(PROVIDERS)}")
        # a file for both OpenAI and Azure has a model of the one and a deployment of the other
        name = model or (environment.get("AZURE_OPENAI_DEPLOYMENT_NAME") if chosen == "azure" else None)
        name = name or environment.get(MODEL_VARIABLE, "") * (option == "--provider") or _DEFAULT_MODELS.get(chosen)
        if not name:
            needed = f"--model or ${MODEL_VARIABLE}" if option == "--provider" else "PROVIDER:MODEL"
            raise ModelNotChosen(f"{option} {chosen} needs {needed}")
        return cls(provider=chosen, model=name, by_default=not (named or found))

    async def open(
        self,
        stack: AsyncExitStack,
        environment: Mapping[str, str],
        *,
        thinking: Thinking | None = None,
        effort: Effort | None = None,
        temperature: float | None = None,
        fenced_code: bool = False,
    ) -> "ModelProvider":
        """Return access to the model; nothing is sent yet. The stack closes it. Raises ModelNotChosen, and ValueError
        for an address that cannot be one.

        With `fenced_code`, the model is offered no tools.
        """
        if self.provider in ("openai", "openai-responses", "azure"):
            if thinking:
                raise ModelNotChosen("--thinking is for models of Anthropic; use --effort")
            client = await stack.enter_async_context(self._open_openai(environment))
            from mcp_exec_client.agent.providers.openai import OpenAIProvider, OpenAIResponsesProvider

            if self.provider != "openai-responses":
                return OpenAIProvider(
                    self.model, sdk=client, effort=effort, temperature=temperature, supports_tools=not fenced_code
                )
            if not fenced_code:
                return OpenAIResponsesProvider(self.model, sdk=client, effort=effort, temperature=temperature)
        if fenced_code:
            raise ModelNotChosen(
                f"--fenced-code is for the providers openai and azure: models of {self.provider} have tools"
            )
        from mcp_exec_client.agent.providers.anthropic_messages import AnthropicProvider

        sdk = await stack.enter_async_context(self._open_anthropic(environment))
        return AnthropicProvider(self.model, sdk=sdk, thinking=thinking, effort=effort, temperature=temperature)

    def _open_anthropic(self, environment: Mapping[str, str]) -> Any:
        import anthropic
        import httpx2

        kinds: dict[str, Any] = {
            "anthropic": anthropic.AsyncAnthropic,
            "bedrock": anthropic.AsyncAnthropicBedrock,
            "vertex": anthropic.AsyncAnthropicVertex,
            "foundry": anthropic.AsyncAnthropicFoundry,
        }
        try:
            sdk = reach_directly(kinds[self.provider](), anthropic.DefaultAsyncHttpxClient)
        except (anthropic.AnthropicError, httpx2.InvalidURL, ValueError) as error:
            raise self._explain(error, environment) from error
        if self.provider == "anthropic" and not (sdk.api_key or sdk.auth_token or sdk.credentials):
            raise self._explain(None, environment)
        return sdk

    def _open_openai(self, environment: Mapping[str, str]) -> "AsyncOpenAI":
        import httpx2
        import openai

        version = environment.get("OPENAI_API_VERSION") or environment.get("AZURE_OPENAI_API_VERSION") or _AZURE_VERSION
        try:
            made = openai.AsyncAzureOpenAI(api_version=version) if self.provider == "azure" else openai.AsyncOpenAI()
            sdk: AsyncOpenAI = reach_directly(made, openai.DefaultAsyncHttpxClient)
        except (openai.OpenAIError, httpx2.InvalidURL, ValueError) as error:
            raise self._explain(error, environment) from error
        return sdk

    def _explain(self, error: Exception | None, environment: Mapping[str, str]) -> ModelNotChosen:
        """Return which settings are missing or wrong; the words of the SDK, if it needs others."""
        address = _ADDRESSES.get(self.provider, "")
        if type(error).__name__ == "InvalidURL" and environment.get(address):
            given = environment[address][:200]
            return ModelNotChosen(f"${address} is {given!r}; {A_VALID_ADDRESS}")
        needs = _NEEDS[self.provider]
        missing = [name for name, variables in needs.items() if not any(environment.get(each) for each in variables)]
        why = "" if missing or error is None else f" ({error})"
        text = f"provider {self.provider} needs {' and '.join(missing or needs)}, or use --offline{why}"
        if self.by_default:
            text += f"; it is the default: --provider, ${PROVIDER_VARIABLE} or llm.provider names another, of "
            text += ", ".join(PROVIDERS)
        return ModelNotChosen(text)
