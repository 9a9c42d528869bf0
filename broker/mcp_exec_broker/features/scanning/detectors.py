"""Detectors of personal data and of credentials in all texts of a JSON value, which are joined for one search.

Personal data are e-mail addresses and phone, card, bank account and social security numbers. Patterns find candidates,
and python-stdnum and phonenumbers check them. The check of a phone number takes about 100 us: beyond 5,000 checks every
candidate counts as a phone number.

Credentials are found by the patterns of detect-secrets. Only kinds with a distinct form are used: detection by variable
names or by entropy has too many false positives. RE2 evaluates them in linear time, while Python's regular expressions
take quadratic time on hostile texts.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
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
from phonenumbers import Leniency, PhoneNumberMatcher
from stdnum import iban, luhn
from stdnum.us import ssn

_SEPARATOR: Final = "\n\0\n"
"""Separates two texts; no pattern spans it."""
_MIN_CARD_NUMBER: Final = 10**12
"""Whole numbers from here on may be card numbers; smaller ones are not scanned."""
_ENCODING: Final = ("utf-8", "surrogatepass")
EMAIL: Final = "EMAIL"
PHONE: Final = "PHONE"
CARD: Final = "CARD"
IBAN: Final = "IBAN"
SSN: Final = "SSN"
KINDS: Final = (EMAIL, PHONE, CARD, IBAN, SSN)
_MAX_CHECKS: Final = 5_000
_MAX_RUN: Final = 200
"""Bytes of a run of digits that are checked together."""
_ADDRESS: Final = rb"[\pL\pN._%+'-]+@[\pL\pN-]+(?:\.[\pL\pN-]+)*\.\pL\pL+"
_MAX_ADDRESS: Final = 320
_NOT_AN_ADDRESS: Final = b"git@"
_ACCOUNT: Final = re.compile(rb"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}\b")
_RUN: Final = re.compile(rb"[+(]{0,2}[0-9](?:(?:[ ().+/-]|\xc2\xa0){0,2}[0-9]){6,}")
"""Digits, and the separators that people write between them."""
_CARD: Final = re.compile(rb"(?<![0-9])[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
_SSN: Final = re.compile(rb"(?<![0-9-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![0-9-])")
_DATE: Final = re.compile(
    rb"(?:19|20)\d\d[-/.][01]\d[-/.][0-3]\d|[0-3]?\d[./-][01]?\d[./-](?:19|20)\d\d|[0-9]+(?:\.[0-9]+)?$"
)
"""Dates and plain numbers, which most runs of digits are."""
_BRANDS: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}|35\d{14}|6(?:011|5\d\d|4\d\d|2\d\d)\d{12,15}"
)
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
class Span:
    """A finding in the joined texts, by byte offsets."""

    start: int
    end: int
    kind: str


class TextIndex:
    """The keys and strings of a JSON value, and its whole numbers that are as long as card numbers."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._parts: list[str | int] = list(_iterate_texts(value))
        pieces = [part if isinstance(part, str) else str(part) for part in self._parts]
        self.data = _SEPARATOR.join(pieces).encode(*_ENCODING)
        self._pieces = pieces

    def get_original(self, span: Span) -> str | int:
        """Return the finding, as a number if it is one."""
        part = self._parts[bisect_right(self._starts, span.start) - 1]
        return part if isinstance(part, int) else self.get_text(span)

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [], 0
        for piece in self._pieces:
            starts.append(at)
            at += (len(piece) if piece.isascii() else len(piece.encode(*_ENCODING))) + len(_SEPARATOR)
        return starts

    def get_text(self, span: Span) -> str:
        """Return the finding."""
        return self.data[span.start : span.end].decode(*_ENCODING)

    def find_end_of_text(self, at: int) -> int:
        """Return the end of the text that contains a byte offset."""
        end = self.data.find(_SEPARATOR.encode(), at)
        return len(self.data) if end < 0 else end

    def replace(self, replacements: Iterable[tuple[Span, str]]) -> Any:
        """Return the value with spans replaced; the spans are in order and do not overlap."""
        starts = self._starts
        by_part: dict[int, list[tuple[Span, str]]] = {}
        for span, text in replacements:
            by_part.setdefault(bisect_right(starts, span.start) - 1, []).append((span, text))
        changed: dict[int, str] = {}
        for part, spans in by_part.items():
            end_of_part = starts[part + 1] - len(_SEPARATOR) if part + 1 < len(starts) else len(self.data)
            pieces, at = [], starts[part]
            for span, text in spans:
                pieces += [self.data[at : span.start].decode(*_ENCODING), text]
                at = min(span.end, end_of_part)
            pieces.append(self.data[at:end_of_part].decode(*_ENCODING))
            changed[part] = "".join(pieces)
        texts = iter(changed.get(number, part) for number, part in enumerate(self._parts))
        return _rebuild(self._value, texts)


def _iterate_texts(value: Any) -> Iterator[str | int]:
    """Yield the texts in the order of _rebuild, with an explicit stack because JSON may be nested deeply."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            for name, member in reversed(item.items()):
                stack.append(member)
                stack.append(str(name))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        elif type(item) is int and item >= _MIN_CARD_NUMBER:
            yield item


def _rebuild(value: Any, texts: Iterator[str | int]) -> Any:
    if isinstance(value, str) or (type(value) is int and value >= _MIN_CARD_NUMBER):
        return next(texts)
    if isinstance(value, list):
        return [_rebuild(item, texts) for item in value]
    if not isinstance(value, dict):
        return value
    members: dict[str, Any] = {}
    for name in value:
        wanted = new = str(next(texts))
        while new in members or (new != name and new in value):  # two keys with equal replacements stay two
            new = f"{wanted}_{len(members)}"
        members[new] = _rebuild(value[name], texts)
    return members


class PersonalDataDetector:
    """Detector of personal data, built once per process. Phone numbers without a country code belong to `region`."""

    def __init__(self, *, region: str = "US") -> None:
        self._region = region
        options = re2.Options()
        options.log_errors = False
        self._address = re2.compile(_ADDRESS, options)

    def find(self, texts: TextIndex) -> Iterator[Span]:
        """Yield the spans of personal data, which may overlap."""
        yield from self._find_addresses(texts)
        yield from _find_accounts(texts)
        yield from self._find_numbers(texts)

    def _find_addresses(self, texts: TextIndex) -> Iterator[Span]:
        if b"@" not in texts.data:
            return
        for match in self._address.finditer(texts.data):
            if not match.group().startswith(_NOT_AN_ADDRESS):
                yield Span(start=max(match.start(), match.end() - _MAX_ADDRESS), end=match.end(), kind=EMAIL)

    def _find_numbers(self, texts: TextIndex) -> Iterator[Span]:
        checks = 0
        for match in _RUN.finditer(texts.data):
            for start in range(match.start(), match.end(), _MAX_RUN):
                end = min(start + _MAX_RUN, match.end())
                run = texts.data[start:end]
                spans = [*_find_matches(_CARD, run, start, CARD), *_find_matches(_SSN, run, start, SSN)]
                yield from spans
                if spans or (_DATE.match(run) and not _is_international(run)):
                    continue
                checks += 1
                if checks > _MAX_CHECKS:
                    yield Span(start=start, end=end, kind=PHONE)
                else:
                    yield from self._find_phones(run, start)

    def _find_phones(self, run: bytes, offset: int) -> Iterator[Span]:
        text = run.replace(b"\xc2\xa0", b"  ").decode("ascii", "replace")  # as many characters as bytes
        if text.startswith("00"):
            text = " +" + text[2:]
        for match in PhoneNumberMatcher(text, self._region, leniency=Leniency.VALID, max_tries=20):
            yield Span(start=offset + match.start, end=offset + match.end, kind=PHONE)


def _find_accounts(texts: TextIndex) -> Iterator[Span]:
    for match in _ACCOUNT.finditer(texts.data):
        # the pattern also matches a following word in capitals: the length of an account depends on its country
        words = match.group().decode().split(" ")
        for number in range(len(words), 0, -1):
            text = " ".join(words[:number])
            if iban.is_valid(text):
                yield Span(start=match.start(), end=match.start() + len(text), kind=IBAN)
                break


def _find_matches(pattern: re.Pattern[bytes], run: bytes, offset: int, kind: str) -> Iterator[Span]:
    for match in pattern.finditer(run):
        text = match.group().decode()
        if _is_card(text) if kind == CARD else ssn.is_valid(text):
            yield Span(start=offset + match.start(), end=offset + match.end(), kind=kind)


def _is_card(text: str) -> bool:
    digits = text.replace(" ", "").replace("-", "")
    return _BRANDS.fullmatch(digits) is not None and bool(luhn.is_valid(digits))


def _is_international(run: bytes) -> bool:
    return run.startswith((b"+", b"(+", b"00"))


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
    """Return literals; each match contains one of them: beginning, the first group's alternatives, or known ones."""
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
    """Return the end of a secret. The pattern may have matched only its beginning."""
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
