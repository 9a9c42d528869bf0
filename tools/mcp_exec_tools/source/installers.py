"""Commands that install packages, which nothing in a sandbox can do. A module of its own: each runner imports it."""

import re
from typing import Final

INSTALL_SENTENCE: Final = "packages come with the image of the pool, and nothing can be installed in a sandbox"
"""Answer to each attempt."""

INSTALLERS: Final = frozenset(
    {
        *("pip", "pip3", "pipx", "easy_install", "conda", "mamba", "micromamba", "uv", "poetry", "pdm", "npm"),
        *("apt", "apt-get", "apk", "yum", "dnf", "brew"),
    }
)
_PREFIXES: Final = frozenset({"sudo", "env", "bash", "sh", "exec", "!"})
_ACTIONS: Final = frozenset({"install", "add", "sync"})
_COMMAND_END: Final = re.compile(r"&&|[;|\n]")
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")
_FILES: Final = (".txt", ".toml", ".whl", ".yml", ".yaml")
_MAX_CHARACTERS: Final = 4000
_MAX_PACKAGES: Final = 20


def find_installed_packages(command: str) -> list[str] | None:
    """Return the packages that a command line installs, or None if no installer is called in it.

    Only the first 4,000 characters are read.
    """
    for part in _COMMAND_END.split(command[:_MAX_CHARACTERS]):
        words = [word.strip("'\"") for word in part.split()]
        while words and _is_prefix(words[0]):
            del words[0]
        if words and _get_name(words[0]) in INSTALLERS and _ACTIONS.intersection(words):
            return _list_packages(words[1:])
    return None


def _is_prefix(word: str) -> bool:
    name = _get_name(word)
    return name.startswith(("-", "python", "{")) or name in _PREFIXES


def _get_name(word: str) -> str:
    return word.rpartition("/")[2]


def _list_packages(words: list[str]) -> list[str]:
    """Return the names after the word `install`, without options, files and versions."""
    place = next(place for place, word in enumerate(words) if word in _ACTIONS)
    names = (_NAME.match(word) for word in words[place + 1 :] if "/" not in word and not word.endswith(_FILES))
    return [name[0] for name in names if name is not None][:_MAX_PACKAGES]
