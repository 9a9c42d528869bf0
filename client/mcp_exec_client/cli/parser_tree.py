"""Commands, options and arguments of a parser, which argparse keeps to itself."""

import argparse
from collections.abc import Iterator, Mapping


def find_commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the commands of a parser by their names; none if it is a command without further ones."""
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return action.choices
    return {}


def find_summaries(parser: argparse.ArgumentParser) -> Mapping[str, str]:
    """Return the one-line help of each command of a parser."""
    return {
        choice.dest: choice.help or ""
        for action in parser._actions  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
        for choice in action._choices_actions  # noqa: SLF001
    }


def find_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options of a command, in their order."""
    return [action for action in parser._actions if action.option_strings]  # noqa: SLF001


def find_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the positional arguments of a command, in their order, without its commands."""
    return [
        action
        for action in parser._actions  # noqa: SLF001
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and all its commands, each before its own commands."""
    yield parser
    for command in find_commands(parser).values():
        yield from walk(command)
