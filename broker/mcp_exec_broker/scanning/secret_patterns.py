"""Detection of credentials in texts: the patterns of detect-secrets, evaluated by RE2.

Only kinds with a distinct form are used: detection by variable names or by entropy has too many false positives. RE2
takes linear time, while Python's regular expressions take quadratic time on hostile texts.
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
_NEWER_PATTERNS: Final = (
    ("GitHub Token", r"\bgithub_pat_[A-Za-z0-9_]{60}"),
    ("Anthropic Token", r"\bsk-ant-[a-z0-9]{2,12}-[A-Za-z0-9_-]{40}"),
    ("Google API Key", r"\bAIza[A-Za-z0-9_-]{35}\b"),
    ("NPM tokens", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("Supabase Token", r"sb[pv]_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{20}"),
    ("Slack Token", r"\bxapp-[0-9]-[A-Z0-9]+-[0-9]+-[a-f0-9]{20}"),
)
"""Forms newer than the plugins, as documented by their issuers."""

_PRIVATE_KEY: Final = PrivateKeyDetector.secret_type
_JWT: Final = JwtTokenDetector.secret_type
_GROUPED: Final = frozenset({BasicAuthDetector.secret_type, AWSKeyDetector.secret_type})
"""Kinds whose only group is the secret itself."""
_TOKEN_REST: Final = re.compile(rb"[A-Za-z0-9_+/=.-]*")
_DASHES: Final = b"-----"
_KEY_END: Final = re.compile(rb"-----END [A-Z0-9 ]{0,40}-----")
_PREFIX: Final = 12
_KNOWN_LITERALS: Final = {
    "aws.": (b"aws",),
    "://": (b"://",),
    "[0-9a-z]{32}-us": (b"-us",),
    r"\/\/": (b":_authToken=",),
    "xox": (b"xox",),
    r"https://hooks\.slack": (b"hooks.slack.com",),
    "(?:r|s)k_live_": (b"k_live_",),
    "sb[pv]_": (b"sbp_", b"sbv_", b"sb_secret_"),
}
"""Literals that a pattern requires but that its form does not show, by the pattern's beginning."""


@dataclass(frozen=True, kw_only=True)
class _Pattern:
    kind: str
    compiled: Any
    literals: tuple[bytes, ...]
    """Each text that the pattern matches contains one of them."""
    ignores_case: bool


class SecretDetector:
    """Detector of credentials, built once per process."""

    def __init__(self) -> None:
        plugins: list[tuple[str, Iterable[re.Pattern[str]]]] = [
            (str(plugin.secret_type), cast(Iterable[re.Pattern[str]], plugin.denylist)) for plugin in _PLUGINS
        ]
        self._patterns = [
            _build_pattern(kind, pattern.pattern, ignores_case=bool(pattern.flags & re.IGNORECASE))
            for kind, patterns in plugins
            for pattern in patterns
        ]
        self._patterns += [_build_pattern(kind, text) for kind, text in _NEWER_PATTERNS]
        literals = {re.escape(literal) for pattern in self._patterns for literal in pattern.literals}
        self._any_literal = _compile(b"|".join(sorted(literals)), ignores_case=True)
        self.kinds = sorted({pattern.kind for pattern in self._patterns})

    def find(self, texts: TextIndex) -> Iterator[Span]:
        """Yield the spans of likely credentials; spans of different kinds may overlap."""
        data = texts.data
        if self._any_literal.search(data) is None:
            return
        lower_case = data.lower()
        for pattern in self._patterns:
            haystack = lower_case if pattern.ignores_case else data
            if any(literal in haystack for literal in pattern.literals):
                yield from _find_pattern(pattern, texts)


def _find_pattern(pattern: _Pattern, texts: TextIndex) -> Iterator[Span]:
    has_group = pattern.kind in _GROUPED and pattern.compiled.groups == 1
    at = 0
    while (match := pattern.compiled.search(texts.data, at)) is not None:
        start, end = match.span(1 if has_group else 0)
        at = match.end()
        if pattern.kind == _JWT and not _is_jwt(texts, start, end):
            continue
        # the next search starts behind the whole credential, or one text could be searched again and again
        end = _find_end(texts, pattern.kind, start, end)
        at = max(at, end)
        if pattern.kind == _PRIVATE_KEY and texts.data.endswith(_DASHES, 0, start):
            start -= len(_DASHES)
        yield Span(start=start, end=end, kind=pattern.kind)


def _build_pattern(kind: str, text: str, *, ignores_case: bool = False) -> _Pattern:
    literals = _extract_literals(text)
    return _Pattern(
        kind=kind,
        compiled=_compile(_adapt(text).encode(), ignores_case=ignores_case),
        literals=tuple(literal.lower() if ignores_case else literal for literal in literals),
        ignores_case=ignores_case,
    )


def _compile(pattern: bytes, *, ignores_case: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignores_case
    return re2.compile(pattern, options)


def _adapt(pattern: str) -> str:
    """Return the pattern in RE2's syntax: without its final look-ahead, and with the shortest repetition.

    A match may be too short then, and `_find_end` extends it.
    """
    return re.sub(r"\{(\d+),\d+\}$", r"{\1}", pattern.removesuffix(r"(?!\w)"))


def _extract_literals(pattern: str) -> tuple[bytes, ...]:
    """Return literals of which each match contains one: beginning, the first group's alternatives, or known ones."""
    for beginning, literals in _KNOWN_LITERALS.items():
        if pattern.startswith(beginning):
            return literals
    plain = re.match(r"(?:\\b)?((?:[A-Za-z0-9_ :=-]|\\[./])+)(?![*+?{|])", pattern)
    if plain is not None and "|" not in pattern and len(plain[1]) > 1:
        return (plain[1].replace("\\", "")[:_PREFIX].encode(),)
    group = re.match(r"\(\?:([A-Z0-9|\[\]-]+)\)|\(([a-z|]+)\)", pattern)
    if group is None:
        raise AssertionError(f"no literal of {pattern} is known")
    return tuple(alternative.split("[")[0].encode() for alternative in (group[1] or group[2]).split("|"))


def _find_end(texts: TextIndex, kind: str, start: int, end: int) -> int:
    """Return the end of a secret, of which the pattern may have matched only the beginning."""
    if kind == _PRIVATE_KEY:
        last = texts.find_end_of_text(end)
        match = _KEY_END.search(texts.data, end, last)
        return last if match is None else match.end()
    if kind in _GROUPED:
        return end
    rest = _TOKEN_REST.match(texts.data, end)
    return end if rest is None else rest.end()


def _is_jwt(texts: TextIndex, start: int, end: int) -> bool:
    return bool(JwtTokenDetector.is_formally_valid(texts.data[start:end].decode("ascii")))
