"""Servers that refuse requests as the real ones do, in their own words.

The words are those of error messages in public bug reports: of OpenAI, Azure OpenAI, Ollama, vLLM and llama.cpp.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_servers.chat_api import KEY, ChatApi
from tests.support.model_servers.responses_api import ResponsesApi
from tests.support.model_servers.script import Block, Request

CODEX = "gpt-5.1-codex-mini"
_LEARN_MORE = "https://go.microsoft.com/fwlink/?linkid=2197993."


def openai_error(message: str, *, param: str | None = None, code: str | None = None) -> Any:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def azure_error(code: str, message: str) -> Any:
    return {"error": {"code": code, "message": message}}


def refuse_temperature(request: Request) -> tuple[int, Any] | None:
    """Refuse a temperature as models that think do."""
    if "temperature" not in request:
        return None
    message = "Unsupported parameter: 'temperature' is not supported with this model."
    return 400, openai_error(message, param="temperature", code="unsupported_parameter")


class AzureCodex(ResponsesApi):
    """A resource of Azure OpenAI whose only deployment is a codex model, which has no chat API."""

    path = "/openai/v1/responses"

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        return super().find_problem(request, {"authorization": f"Bearer {headers.get('api-key')}"})

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        deployment = path.split("/")[3] if path.startswith("/openai/deployments/") else request["model"]
        if deployment != CODEX:
            message = "The API deployment for this resource does not exist. If you created the deployment within the "
            return 404, azure_error("DeploymentNotFound", message + "last 5 minutes, please wait and try again.")
        if path.startswith("/openai/deployments/"):
            message = f"The chatCompletion operation does not work with the specified model, {CODEX}. Please choose "
            message += "different model and try again. You can learn more about which models can be used with each "
            return 400, azure_error("OperationNotSupported", f"{message}operation here: {_LEARN_MORE}")
        if path == "/openai/responses":
            message = "Azure OpenAI Responses API is enabled only for api-version 2025-03-01-preview and later"
            return 400, azure_error("BadRequest", message)
        return refuse_temperature(request)


class AzureOfOldVersion(ChatApi):
    """A deployment of gpt-4o at Azure by a version of the API that knows only `max_tokens`."""

    path = "/openai/deployments/gpt-4o/chat/completions"
    unknown = ("max_completion_tokens", "stream_options")

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        given = {name: value for name, value in request.items() if name != "max_tokens"}
        return super().find_problem(given, {"authorization": f"Bearer {headers.get('api-key')}"})

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        field = next((name for name in self.unknown if name in request), None)
        return (400, openai_error(f"Unrecognized request argument supplied: {field}")) if field else None


class SmallAnswers(ChatApi):
    """gpt-4o-mini, whose answers have at most 16,384 tokens."""

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        if (given := request["max_completion_tokens"]) <= 16_384:
            return None
        message = f"max_tokens is too large: {given}. This model supports at most 16384 completion tokens, whereas "
        return 400, openai_error(f"{message}you provided {given}.", param="max_tokens", code="invalid_value")


class OnlyResponses(ResponsesApi):
    """A model of OpenAI that only the Responses API has."""

    message = "This model is only supported in v1/responses and not in v1/chat/completions."

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        return None if path == self.path else (404, openai_error(self.message, param="model"))


class LocalApi(ChatApi):
    """A server of the chat API on one's own machine: it takes any key and either name of the limit."""

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        given = {name: value for name, value in request.items() if name != "max_tokens"}
        return super().find_problem(given, {"authorization": f"Bearer {KEY}"})


class OllamaWithoutTools(LocalApi):
    """Ollama with a model whose template has no tools."""

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        if "tools" not in request:
            return None
        message = f"registry.ollama.ai/library/{request['model']} does not support tools"
        return 400, {"error": {"message": message, "type": "api_error", "param": None, "code": None}}


class Ollama(LocalApi):
    """Ollama: each call is whole in one part, and all calls of an answer have the index 0."""

    def list_call_deltas(self, index: int, block: Block) -> Iterator[Block]:
        function = {"name": block["name"], "arguments": json.dumps(block["input"])}
        yield {"tool_calls": [{"index": 0, "id": block["id"], "type": "function", "function": function}]}


class IndexZeroWithoutIds(LocalApi):
    """An endpoint whose calls all have the index 0 and an empty id."""

    def list_call_deltas(self, index: int, block: Block) -> Iterator[Block]:
        yield from super().list_call_deltas(0, {**block, "id": ""})


class NewIdInEachPart(LocalApi):
    """vLLM of earlier releases: each part of a call has an id of its own."""

    def list_call_deltas(self, index: int, block: Block) -> Iterator[Block]:
        for number, delta in enumerate(super().list_call_deltas(index, block)):
            delta["tool_calls"][0]["id"] = f"{block['id']}-{number}" if number else block["id"]
            yield delta


class VllmWithoutParser(LocalApi):
    """vLLM that was started without the options for tools."""

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        if "tools" not in request:
            return None
        message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


class VllmWithSmallWindow(LocalApi):
    """vLLM with a context of 8192 tokens, which the answer and the messages share; a message is 100 tokens here."""

    window = 8192

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        asked, given = request["max_completion_tokens"], 100 * len(request["messages"])
        if asked <= self.window - given:
            return None
        message = (
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
            f"{self.window} tokens and your request has {given} input tokens ({asked} > {self.window} - {given})."
        )
        return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


class LlamaWithoutJinja(LocalApi):
    """llama.cpp's server without `--jinja`."""

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        if "tools" not in request:
            return None
        return 500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}
