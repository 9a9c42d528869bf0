"""Commands that install packages or need a network, which nothing in a sandbox can do.

A module of its own: each runner imports it.
"""

import re
from collections.abc import Iterator
from typing import Final

INSTALL_SENTENCE: Final = "packages come with the image of the pool, and nothing can be installed in a sandbox"
"""Answer to each attempt."""
NETWORK_SENTENCE: Final = "a sandbox has no network; call a tool instead"
"""Answer to each attempt to reach one."""
NETWORK_PROGRAMS: Final = frozenset(
    {
        *("aria2c", "curl", "dig", "ftp", "git", "host", "nc", "ncat", "netcat", "nslookup", "ping", "rsync", "scp"),
        *("sftp", "ssh", "telnet", "traceroute", "wget"),
    }
)
NETWORK_LIBRARIES: Final = frozenset(
    {
        *("aiohttp", "anthropic", "boto3", "botocore", "curl_cffi", "feedparser", "grpc", "httplib2", "httpx"),
        *("openai", "paramiko", "playwright", "praw", "psycopg", "psycopg2", "pycurl", "pymongo", "pymysql", "redis"),
        *("requests", "scrapy", "selenium", "slack_sdk", "tweepy", "urllib3", "websocket", "websockets"),
        *("yfinance", "googleapiclient", "github", "stripe", "wikipedia", "yt_dlp"),
    }
)
"""Modules whose only use is to reach a network."""

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
    for words in _split(command):
        if _get_name(words[0]) in INSTALLERS and _ACTIONS.intersection(words):
            return _list_packages(words[1:])
    return None


def find_network_program(command: str) -> tuple[str, list[str]] | None:
    """Return the first program of a command line that needs a network, as it is called, and its arguments.

    Only the first 4,000 characters are read.
    """
    return next(((words[0], words[1:]) for words in _split(command) if _get_name(words[0]) in NETWORK_PROGRAMS), None)


def _split(command: str) -> Iterator[list[str]]:
    """Return the words of each command of a command line, without programs that start others."""
    for part in _COMMAND_END.split(command[:_MAX_CHARACTERS]):
        words = [word.strip("'\"") for word in part.split()]
        while words and _is_prefix(words[0]):
            del words[0]
        if words:
            yield words


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
