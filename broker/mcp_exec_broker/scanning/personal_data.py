"""Detection of personal data: e-mail addresses, phone, card, bank account and social security numbers.

Patterns find candidates, and python-stdnum and phonenumbers check them. The check of a phone number takes about 100 us:
beyond 5,000 checks every candidate counts as a phone number. The time is linear in the length of the text.
"""

import re
from collections.abc import Iterator
from typing import Final

import re2
from phonenumbers import Leniency, PhoneNumberMatcher
from stdnum import iban, luhn
from stdnum.us import ssn

from mcp_exec_broker.scanning.text_index import Span, TextIndex

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
