"""Completion: the candidates for a command line, and the scripts of the shells that ask for them.

The scripts call `mcp-exec __complete WORD...`, whose last word is completed. It prints a line per candidate: the word,
a tab and a description. The line `:files` means that the shell completes names of files."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from mcp_exec_client.cli.connection import KUBECTL, open_backend
from mcp_exec_client.cli.exit_codes import CommandError
from mcp_exec_client.cli.options import Subcommands, add_command
from mcp_exec_client.cli.output import escape_line
from mcp_exec_client.cli.profiles import default_path, read_profiles

COMPLETE: Final = "__complete"
FILES: Final = ":files"
REQUEST_SECONDS: Final = 3.0
"""Time limit of a request for names: a shell that completes must not hang."""
_MAX_NAMES: Final = 100
_ANY_ARGUMENTS: Final = ("any",) * 3
"""Values of arguments that are not typed yet. No command needs more."""
_BASH: Final = """\
# bash completion of mcp-exec: eval "$(mcp-exec completion bash)"
_mcp_exec() {
    local line candidate
    COMPREPLY=()
    while IFS= read -r line; do
        candidate=${line%%$'\\t'*}
        if [ "$candidate" = ':files' ]; then
            compopt -o default 2>/dev/null
            COMPREPLY=()
            return
        fi
        COMPREPLY+=("$(printf '%q' "$candidate")")
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _mcp_exec mcp-exec
"""
_ZSH: Final = """\
#compdef mcp-exec
# zsh completion of mcp-exec: eval "$(mcp-exec completion zsh)", after compinit
_mcp_exec() {
    local line
    local -a candidates
    while IFS= read -r line; do
        if [[ "${line%%$'\\t'*}" == ':files' ]]; then
            _files
            return
        fi
        candidates+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    _describe 'mcp-exec' candidates
}
compdef _mcp_exec mcp-exec
"""
_FISH: Final = """\
# fish completion of mcp-exec: mcp-exec completion fish | source
function __mcp_exec_complete
    set -l words (commandline -opc)
    set -l candidates ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
    if test "$candidates[1]" = ':files'
        __fish_complete_path (commandline -ct)
    else
        printf '%s\\n' $candidates
    end
end
complete -c mcp-exec -f -a '(__mcp_exec_complete)'
"""
_DESCRIPTION: Final = """Prints a script that completes commands, options and names of executions in a shell.

examples:
  eval "$(mcp-exec completion bash)"                             # in ~/.bashrc
  eval "$(mcp-exec completion zsh)"                              # in ~/.zshrc, after compinit
  mcp-exec completion fish > ~/.config/fish/completions/mcp-exec.fish
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def find_candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the words that can stand in place of the last one, with their descriptions."""
    *before, current = words or [""]
    state = _CommandLine(parser)
    for word in before:
        state.take(word)
    return [(word, text) for word, text in state.find_candidates(current) if word == FILES or word.startswith(current)]


def find_command(parser: argparse.ArgumentParser, words: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of the command that the words name."""
    state = _CommandLine(parser)
    for word in words:
        state.take(word)
    return state.parser


class _CommandLine:
    """The words typed so far: the command, and the option or argument that comes next."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.words: list[str] = []
        self.arguments = find_arguments(parser)
        self.pending: argparse.Action | None = None
        """Option whose value comes next."""

    def take(self, word: str) -> None:
        """Take in a complete word."""
        self.words.append(word)
        if self.pending is not None:
            self.pending = None
        elif word.startswith("-") and word != "-":
            action = next((each for each in find_options(self.parser) if word in each.option_strings), None)
            self.pending = action if action is not None and action.nargs != 0 else None
        elif commands := find_commands(self.parser):
            self.parser = commands.get(word, self.parser)
            self.arguments = find_arguments(self.parser)
        elif self.arguments and self.arguments[0].nargs not in ("+", "*"):
            self.arguments.pop(0)

    def find_candidates(self, current: str) -> list[tuple[str, str]]:
        """Return candidates for the next word, which begins with `current`."""
        if self.pending is not None:
            return self._find_values(self.pending)
        if current.startswith("-"):
            # the long form of an option is enough
            return [(action.option_strings[-1], action.help or "") for action in find_options(self.parser)]
        if summaries := find_summaries(self.parser):
            return list(summaries.items())
        return self._find_values(self.arguments[0]) if self.arguments else []

    def _find_values(self, action: argparse.Action) -> list[tuple[str, str]]:
        if action.choices:
            return [(str(choice), "") for choice in action.choices]
        kind = getattr(action, "completer", None)
        if kind == "file":
            return [(FILES, "")]
        if kind == "profile":
            return [(name, "") for name in read_profiles(default_path()).profiles]
        return _find_names(self.parser, self.words, kind) if kind in ("execution", "session") else []


def _find_names(parser: argparse.ArgumentParser, words: Sequence[str], kind: str) -> list[tuple[str, str]]:
    """Return names of executions, newest first, or of sessions; none if the request fails or takes long."""
    command = words[0] if words else ""
    program = KUBECTL if parser.prog.startswith(KUBECTL) else parser.prog.partition(" ")[0]
    nested = len(parser.prog.removeprefix(program).split())
    known, _ = parser.parse_known_args([*words[nested:], *_ANY_ARGUMENTS])
    options = argparse.Namespace(**{**vars(known), "program": program, "command": command})

    # Imported for a request, not for each word.
    import asyncio

    async def request() -> list[tuple[str, str]]:
        from mcp_exec_client.cli.backends.backend import Selection

        async with asyncio.timeout(REQUEST_SECONDS), open_backend(options) as backend:
            if kind == "session":
                items = (await backend.list_sessions(user=None))[:_MAX_NAMES]
            else:
                items = await backend.list_executions(Selection(limit=_MAX_NAMES))
        return [(escape_line(str(item["name"])), escape_line(str(item.get("phase")))) for item in items]

    try:
        return asyncio.run(request())
    except (CommandError, TimeoutError):
        return []


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


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "completion", summary="print a shell's completion script", description=_DESCRIPTION)
    command.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=f"one of {', '.join(SCRIPTS)}")
    command.set_defaults(run=lambda options: sys.stdout.write(SCRIPTS[options.shell]))
