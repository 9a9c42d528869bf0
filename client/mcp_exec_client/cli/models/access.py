"""The model that the options and variables of a command name."""

import argparse
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import add_number
from mcp_exec_client.model_choice import (
    ANSWER_VARIABLE,
    PROVIDERS,
    TEMPERATURE_VARIABLE,
    ModelChoice,
)
from mcp_exec_client.model_options import DEFAULT_MODEL, Effort, Thinking

if TYPE_CHECKING:
    from mcp_exec_client.agent.providers.model import ModelProvider

_Number = TypeVar("_Number", int, float)
_ANSWER_TOKENS: Final = 32_000
_MOST_ANSWER_TOKENS: Final = 1_000_000
_MOST_TEMPERATURE: Final = 2


def add_model_options(command: argparse.ArgumentParser) -> None:
    """Add the options that choose a model and say how it answers."""
    command.add_argument(
        "--provider",
        choices=PROVIDERS,
        help="API of the model; openai includes compatible endpoints; default: $LLM_PROVIDER, else by the variables of "
        "the SDKs, else anthropic",
    )
    command.add_argument(
        "--model",
        metavar="NAME",
        help=f"model; default: $LLM_MODEL, else {DEFAULT_MODEL} with the providers anthropic and foundry",
    )
    command.add_argument(
        "--env-file", metavar="FILE", type=Path, help="variables of the model's API, as NAME=VALUE lines"
    )
    command.add_argument("--config", metavar="FILE", type=Path, help="YAML with the fields `llm.provider` and so on")
    command.add_argument(
        "--fallback",
        metavar="PROVIDER[:MODEL]",
        help="model that goes on if the first one fails for good, or `offline` for the scripted one",
    )
    command.add_argument(
        "--thinking",
        choices=get_args(Thinking),
        help="whether a model of Anthropic thinks before it answers; default: as the model does by itself",
    )
    command.add_argument(
        "--effort",
        choices=get_args(Effort),
        help="how much the model thinks and writes; default: as the model does by itself",
    )
    add_number(
        command,
        "--answer-tokens",
        1,
        _MOST_ANSWER_TOKENS,
        help=f"most tokens of one answer, thoughts included; default: ${ANSWER_VARIABLE}, else {_ANSWER_TOKENS}",
    )
    command.add_argument(
        "--temperature",
        metavar="NUMBER",
        type=_temperature,
        help=f"randomness of the answers, from 0 to {_MOST_TEMPERATURE}; not sent to a model that refuses it; default: "
        f"${TEMPERATURE_VARIABLE}, else as the model has it",
    )
    command.add_argument(
        "--fenced-code",
        action="store_true",
        help="offer no tools, and take the code from the fenced blocks of the answers; without it, an API that refuses "
        "tools is noticed",
    )
    command.add_argument(
        "--offline",
        action="store_true",
        help="use a scripted model, which needs no key: it searches for a tool by the words of the task and calls it "
        "with the task's NAME=VALUE pairs",
    )


async def open_provider(options: argparse.Namespace, stack: AsyncExitStack) -> "ModelProvider":
    """Return the model that the options name. The stack closes its connections. Raises CommandError."""
    # the SDKs are imported when they are used: each takes a second to import
    if options.offline:
        from mcp_exec_client.agent.providers.offline import OfflineProvider

        return OfflineProvider()
    if options.temperature is None:
        options.temperature = _read_variable(TEMPERATURE_VARIABLE, float, 0, _MOST_TEMPERATURE)
    try:
        choice = ModelChoice.read(os.environ, provider=options.provider, model=options.model)
        first = await choice.open(
            stack,
            os.environ,
            thinking=options.thinking,
            effort=options.effort,
            temperature=options.temperature,
            fenced_code=options.fenced_code,
        )
        return await _add_fallback(first, options, stack) if options.fallback else first
    except ValueError as error:
        raise CommandError(f"{options.command}: {error}", ExitCode.USAGE) from error


async def _add_fallback(first: "ModelProvider", options: argparse.Namespace, stack: AsyncExitStack) -> "ModelProvider":
    """Return the model with the one that stands in for it. Raises ModelNotChosen."""
    from mcp_exec_client.agent.providers.fallback import FallbackProvider
    from mcp_exec_client.agent.providers.offline import OfflineProvider

    provider, _, model = options.fallback.partition(":")
    if options.fallback == "offline":
        return FallbackProvider([first, OfflineProvider()])
    choice = ModelChoice.read(os.environ, provider=provider, model=model or None, option="--fallback")
    second = await choice.open(stack, os.environ, effort=options.effort, temperature=options.temperature)
    return FallbackProvider([first, second])


def read_answer_tokens(options: argparse.Namespace) -> int:
    """Return the most tokens of an answer. Raises CommandError."""
    given: int | None = options.answer_tokens
    return given or _read_variable(ANSWER_VARIABLE, int, 1, _MOST_ANSWER_TOKENS) or _ANSWER_TOKENS


def _read_variable(name: str, kind: type[_Number], lowest: float, highest: float) -> _Number | None:
    """Return a number of the environment, or None if it is not set. Raises CommandError."""
    text = os.environ.get(name, "")
    try:
        value = kind(text) if text else None
    except ValueError:
        value = kind(-1)
    if value is not None and not lowest <= value <= highest:
        raise CommandError(f"${name} is {text[:40]!r}; it must be from {lowest} to {highest}", ExitCode.USAGE)
    return value


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_TEMPERATURE:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be from 0 to {_MOST_TEMPERATURE}")
    return value
