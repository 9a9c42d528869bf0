"""Address of a model's API with the settings that choose it, as errors name them."""

import json
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.model import MAX_ANSWER_CHARACTERS, ModelProvider
from mcp_exec_client.network import A_VALID_ADDRESS, describe_failure, is_loopback

_MAX_BYTES: Final = 4 * MAX_ANSWER_CHARACTERS
"""Most bytes of an answer that comes as one JSON document."""
_SCHEMES: Final = ("http", "https")


class AnswerCut(Exception):
    """An answer that ended too early. The text says how."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model's API. Raises ValueError if its address cannot be one."""

    model: str
    base_url: Any
    """Address as the SDK has it."""
    address: str
    """Settings of the address."""
    key: str
    """Settings of the key."""
    deployment: bool = False
    """Whether the name is that of a deployment of Azure."""

    def __post_init__(self) -> None:
        if self.base_url.scheme not in _SCHEMES or not self.base_url.host:
            raise ValueError(f"{self.address} is {self.url[:200]!r}; {A_VALID_ADDRESS}")

    @property
    def url(self) -> str:
        """The address without credentials."""
        url = self.base_url.copy_with(userinfo=b"") if self.base_url.userinfo else self.base_url
        return str(url).rstrip("/")

    def __str__(self) -> str:
        return f"the model's API at {self.url}"

    def describe_absence(self, error: BaseException) -> str:
        """Return that the address cannot be reached, and why."""
        return f"{self} cannot be reached ({_find_reason(error)})"

    def advise_name(self) -> str:
        """Return what to do if the API does not know the model."""
        if self.deployment:
            settings = "--model NAME, $AZURE_OPENAI_DEPLOYMENT_NAME or llm.azure_deployment_name"
            return f"no deployment has the name {self.model}: check {settings}"
        causes = "it is misspelt or was retired"
        if is_loopback(self.url):
            causes = f"it is misspelt, was retired, or has to be pulled (`ollama pull {self.model}`)"
        return f"no model has the name {self.model}: {causes}: check --model NAME or $LLM_MODEL"

    def cut(self, error: BaseException) -> ModelError:
        """Return the error of an answer that ended too early."""
        why = str(error) if isinstance(error, AnswerCut) else _find_reason(error)
        return ModelError(f"the answer of {self} was cut off: {why}", retryable=True)

    async def read_whole(self, response: Any) -> dict[str, Any] | None:
        """Return the answer of a server that sends it as one JSON document, or None if it streams the answer.

        Raises ModelError for a web page and for other documents.
        """
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            body = b""
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _MAX_BYTES:
                    raise ModelError(f"the model's answer has more than {_MAX_BYTES} bytes")
            try:
                parsed = json.loads(body)
            except (ValueError, RecursionError):
                parsed = None
            if isinstance(parsed, dict):
                return parsed
        elif kind != "text/html":
            return None
        raise self.refuse_document(kind)

    def refuse_document(self, kind: str = "application/json") -> ModelError:
        """Return the error of a document that is not an answer."""
        return ModelError(
            f"{self} answered with {kind} instead of an event stream: check {self.address}, the network and its proxy"
        )


def find_endpoint(provider: ModelProvider) -> "Endpoint | str":
    """Return the API of a provider, or the model's name if the provider has none."""
    return getattr(provider, "endpoint", f"model {provider.model}")


def _find_reason(error: BaseException) -> str:
    """Return why a request failed; the SDKs' own errors only say that it did."""
    return describe_failure(error.__cause__ or error)
