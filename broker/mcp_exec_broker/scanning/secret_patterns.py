"""Credentials in texts: what the plugins of detect-secrets know, evaluated by RE2.

Only kinds that are told by their own form: those that go by the name of a variable or by entropy take too much for a
secret that is none. Python's regular expressions would take a time quadratic in a text that is made to be hostile.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import re2
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.private_key import PrivateKeyDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from mcp_exec_broker.scanning.text_index import Span, TextIndex

_PLUGINS: Final[tuple[type[RegexBasedDetector], ...]] = (
    AWSKeyDetector,
    AzureStorageKeyDetector,
    BasicAuthDetector,
    GitHubTokenDetector,
    GitLabTokenDetector,
    JwtTokenDetector,
    MailchimpDetector,
    NpmDetector,
    OpenAIDetector,
    PrivateKeyDetector,
    PypiTokenDetector,
    SendGridDetector,
    SlackDetector,
    SquareOAuthDetector,
    StripeDetector,
    TwilioKeyDetector,
)
_MORE: Final = (
    ("GitHub Token", r"\bgithub_pat_[A-Za-z0-9_]{60}"),
    ("Anthropic Token", r"\bsk-ant-[a-z0-9]{2,12}-[A-Za-z0-9_-]{40}"),
    ("Google API Key", r"\bAIza[A-Za-z0-9_-]{35}\b"),
    ("NPM tokens", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("Supabase Token", r"sb[pv]_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{20}"),
    ("Slack Token", r"\bxapp-[0-9]-[A-Z0-9]+-[0-9]+-[a-f0-9]{20}"),
)
"""Forms that are newer than the plugins, as their issuers document them."""

_PRIVATE_KEY: Final = PrivateKeyDetector.secret_type
_JWT: Final = JwtTokenDetector.secret_type
_GROUPED: Final = frozenset({BasicAuthDetector.secret_type, AWSKeyDetector.secret_type})
"""Kinds whose one group is the secret itself."""
_TOKEN_REST: Final = re.compile(rb"[A-Za-z0-9_+/=.-]*")
_DASHES: Final = b"-----"
_KEY_END: Final = re.compile(rb"-----END [A-Z0-9 ]{0,40}-----")
_PREFIX: Final = 12
_NEEDED: Final = {
    "aws.": (b"aws",),
    "://": (b"://",),
    "[0-9a-z]{32}-us": (b"-us",),
    r"\/\/": (b":_authToken=",),
    "xox": (b"xox",),
    r"https://hooks\.slack": (b"hooks.slack.com",),
    "(?:r|s)k_live_": (b"k_live_",),
    "sb[pv]_": (b"sbp_", b"sbv_", b"sb_secret_"),
}
"""Texts that a pattern needs, where its form does not show it, by how it begins."""


@dataclass(frozen=True, kw_only=True)
class _Pattern:
    kind: str
    compiled: Any
    literals: tuple[bytes, ...]
    """One of these is in each text that the pattern matches."""
    folded: bool


class SecretDetector:
    """The patterns, made once a process."""

    def __init__(self) -> None:
        plugins: list[tuple[str, Iterable[re.Pattern[str]]]] = [
            (str(plugin.secret_type), cast(Iterable[re.Pattern[str]], plugin.denylist)) for plugin in _PLUGINS
        ]
        self._patterns = [
            _pattern(kind, each.pattern, folded=bool(each.flags & re.IGNORECASE))
            for kind, patterns in plugins
            for each in patterns
        ]
        self._patterns += [_pattern(kind, text) for kind, text in _MORE]
        literals = {re.escape(literal) for pattern in self._patterns for literal in pattern.literals}
        self._any = _compiled(b"|".join(sorted(literals)), folded=True)
        self.kinds = sorted({pattern.kind for pattern in self._patterns})

    def find(self, texts: TextIndex) -> Iterator[Span]:
        """What looks like a credential; those of different kinds may overlap."""
        data = texts.data
        if self._any.search(data) is None:
            return
        folded = data.lower()
        for pattern in self._patterns:
            where = folded if pattern.folded else data
            if any(literal in where for literal in pattern.literals):
                yield from _found(pattern, texts)


def _found(pattern: _Pattern, texts: TextIndex) -> Iterator[Span]:
    grouped = pattern.kind in _GROUPED and pattern.compiled.groups == 1
    at = 0
    while (found := pattern.compiled.search(texts.data, at)) is not None:
        start, end = found.span(1 if grouped else 0)
        at = found.end()
        if pattern.kind == _JWT and not _is_jwt(texts, start, end):
            continue
        # the next look begins behind the whole of it, or one text could be looked through again and again
        end = _whole(texts, pattern.kind, start, end)
        at = max(at, end)
        if pattern.kind == _PRIVATE_KEY and texts.data.endswith(_DASHES, 0, start):
            start -= len(_DASHES)
        yield Span(start=start, end=end, kind=pattern.kind)


def _pattern(kind: str, text: str, *, folded: bool = False) -> _Pattern:
    literals = _literals(text)
    return _Pattern(
        kind=kind,
        compiled=_compiled(_adapted(text).encode(), folded=folded),
        literals=tuple(literal.lower() if folded else literal for literal in literals),
        folded=folded,
    )


def _compiled(pattern: bytes, *, folded: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not folded
    return re2.compile(pattern, options)


def _adapted(pattern: str) -> str:
    """The pattern in RE2's syntax: without the look-ahead at its end, and no longer than it has to be.

    What it matches may be shorter by that, and `_whole` makes it whole.
    """
    return re.sub(r"\{(\d+),\d+\}$", r"{\1}", pattern.removesuffix(r"(?!\w)"))


def _literals(pattern: str) -> tuple[bytes, ...]:
    """Texts of which the pattern needs one: what it begins with, each of its first group's, or known ones."""
    for beginning, literals in _NEEDED.items():
        if pattern.startswith(beginning):
            return literals
    plain = re.match(r"(?:\\b)?((?:[A-Za-z0-9_ :=-]|\\[./])+)(?![*+?{|])", pattern)
    if plain is not None and "|" not in pattern and len(plain[1]) > 1:
        return (plain[1].replace("\\", "")[:_PREFIX].encode(),)
    group = re.match(r"\(\?:([A-Z0-9|\[\]-]+)\)|\(([a-z|]+)\)", pattern)
    if group is None:
        raise AssertionError(f"no text is known that {pattern} needs")
    return tuple(each.split("[")[0].encode() for each in (group[1] or group[2]).split("|"))


def _whole(texts: TextIndex, kind: str, start: int, end: int) -> int:
    """Where the secret ends of which the pattern may have matched no more than the beginning."""
    if kind == _PRIVATE_KEY:
        last = texts.end_of_text(end)
        found = _KEY_END.search(texts.data, end, last)
        return last if found is None else found.end()
    rest = _TOKEN_REST.match(texts.data, end)
    return end if rest is None or kind in _GROUPED else rest.end()


def _is_jwt(texts: TextIndex, start: int, end: int) -> bool:
    return bool(JwtTokenDetector.is_formally_valid(texts.data[start:end].decode("ascii")))
