"""What is looked for in what goes to servers and comes back: all of it, however large.

Nothing is decoded: what is hidden in base64, compressed or in an image is not seen.
"""

import asyncio
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import prometheus_client
from prometheus_client import CollectorRegistry

from mcp_exec_api.tool_server import PersonalDataAction, Scan, SecretAction
from mcp_exec_broker.errors import ErrorReason, build_denial, build_rejection
from mcp_exec_broker.scanning.personal_data import PersonalDataDetector
from mcp_exec_broker.scanning.secret_patterns import SecretDetector
from mcp_exec_broker.scanning.text_index import Span, TextIndex
from mcp_exec_broker.scanning.tokenizer import Tokenizer

_IN_A_THREAD: Final = 64 * 1024
"""Bytes of text from which on a look would hold up other calls for more than a few milliseconds."""
_AUDITED: Final = 8
"""How many times the audit's bound of characters is looked through."""


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """JSON, as it may go on."""

    value: Any
    found: dict[str, int]
    """How many of each kind were found, such as `GitHub Token` and `EMAIL`; never what."""


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    what: str
    """For the message of a failure."""
    secrets: SecretAction
    personal: PersonalDataAction
    only_known: bool = False
    """Personal data counts only where it has a token already."""


_AUDIT: Final = _Wanted(what="audit", secrets=SecretAction.REDACT, personal=PersonalDataAction.REDACT)


class Scanner:
    """Looks for secrets and personal data; made once a process."""

    def __init__(self, *, region: str = "US", registry: CollectorRegistry | None = None) -> None:
        self._secrets = SecretDetector()
        self._personal = PersonalDataDetector(region=region)
        # few threads of its own: they compete with the event loop for the interpreter
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="scan")
        self._found = prometheus_client.Counter(
            "mcp_exec_broker_findings",
            "Secrets and personal data that were found, by kind and where.",
            ["kind", "where"],
            registry=registry or CollectorRegistry(),
        )

    def close(self) -> None:
        """Ends its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def arguments(self, value: Any, scan: Scan, vault: Tokenizer) -> Scanned:
        """Arguments as they go to the server, with tokens put back where the scan says so (after the look).

        Raises Failure: SecretFound, PersonalDataFound. Large ones are scanned in a thread.
        """
        wanted = _Wanted(what="arguments", secrets=scan.secrets_in_arguments, personal=scan.personal_in_arguments)
        scanned = await self._scan(value, wanted, vault)
        return Scanned(value=vault.put_back(scanned.value), found=scanned.found) if scan.untokenize else scanned

    async def result(self, value: Any, scan: Scan, vault: Tokenizer) -> Scanned:
        """A result as it goes into the sandbox. Raises Failure like `arguments`.

        What has a token in this execution gets it also where the server's results are not looked through: otherwise
        a server that says what it was sent would give away what a token stands for.
        """
        personal, only_known = scan.personal_in_results, False
        if personal is PersonalDataAction.OFF and len(vault):
            personal, only_known = PersonalDataAction.TOKENIZE, True
        wanted = _Wanted(what="result", secrets=scan.secrets_in_results, personal=personal, only_known=only_known)
        return await self._scan(value, wanted, vault)

    def redacted(self, value: Any, *, limit: int = 2048) -> str:
        """JSON text for audit and approvals: secrets and personal data always redacted, bounded in characters."""
        text = json.dumps(value, ensure_ascii=False, default=str)
        if len(text) <= limit:
            found = self._redacted_text(value, text)[:limit]
        else:  # the cut comes first: what is cut off need not be looked through
            cut = text[: _AUDITED * limit]
            found = self._redacted_text(cut, cut)[: limit - 1] + "…"
        return found.encode("utf-8", "replace").decode()  # halves of surrogate pairs can't be stored

    def redacted_message(self, text: str) -> str:
        """A text of somebody else's, such as an error, without secrets and personal data."""
        return self._redacted_text(text, text)

    def _redacted_text(self, value: Any, text: str) -> str:
        texts = TextIndex(value)
        spans = self._spans(texts, _AUDIT, Tokenizer())
        if not spans:
            return text
        changed = texts.replaced((span, f"[REDACTED {span.kind}]") for span in spans)
        return changed if isinstance(value, str) and value is text else json.dumps(changed, ensure_ascii=False)

    async def _scan(self, value: Any, wanted: _Wanted, vault: Tokenizer) -> Scanned:
        if wanted.secrets is SecretAction.OFF and wanted.personal is PersonalDataAction.OFF:
            return Scanned(value=value, found={})
        texts = TextIndex(value)
        if len(texts.data) < _IN_A_THREAD:
            spans = self._spans(texts, wanted, vault)
        else:
            spans = await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: self._spans(texts, wanted, vault)
            )
        if not spans:
            return Scanned(value=value, found={})
        found = Counter(span.kind for span in spans)
        for kind, number in found.items():
            self._found.labels(kind=kind, where=wanted.what).inc(number)
        self._check(found, wanted)
        marks = [(span, self._mark(texts, span, wanted, vault)) for span in spans]
        try:
            return Scanned(value=texts.replaced(marks), found=dict(found))
        except RecursionError as error:
            raise build_rejection(
                ErrorReason.RESULT_TOO_LARGE, f"the {wanted.what} are nested too deeply to look through"
            ) from error

    def _spans(self, texts: TextIndex, wanted: _Wanted, vault: Tokenizer) -> list[Span]:
        """What was found, in order and without overlaps: secrets come first, then what begins first."""
        secrets = [] if wanted.secrets is SecretAction.OFF else _apart(self._secrets.find(texts))
        if wanted.personal is PersonalDataAction.OFF:
            return secrets
        personal = self._personal.find(texts)
        if wanted.only_known:
            personal = (span for span in personal if vault.knows(span.kind, texts.original(span)))
        return _merged(secrets, _apart(personal))

    def _check(self, found: Counter[str], wanted: _Wanted) -> None:
        secrets = [kind for kind in found if kind in self._secrets.kinds]
        personal = [kind for kind in found if kind not in self._secrets.kinds]
        where = "the arguments hold" if wanted.what == "arguments" else "the result was withheld, because it holds"
        if secrets and wanted.secrets is SecretAction.BLOCK:
            raise build_denial(ErrorReason.SECRET_FOUND, f"{where} what looks like a secret: {', '.join(secrets)}")
        if personal and wanted.personal is PersonalDataAction.BLOCK:
            raise build_denial(ErrorReason.PERSONAL_DATA_FOUND, f"{where} personal data: {', '.join(personal)}")

    def _mark(self, texts: TextIndex, span: Span, wanted: _Wanted, vault: Tokenizer) -> str:
        token = None
        if wanted.personal is PersonalDataAction.TOKENIZE and span.kind not in self._secrets.kinds:
            token = vault.token(span.kind, texts.original(span))
        return token or f"[REDACTED {span.kind}]"


def _apart(spans: Iterable[Span]) -> list[Span]:
    """The spans in order; of those that overlap the one that begins first, the longest of them."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not found or span.start >= found[-1].end:
            found.append(span)
    return found


def _merged(first: list[Span], second: list[Span]) -> list[Span]:
    """Both in order, without those of the second that overlap one of the first."""
    if not first:
        return second
    starts = [span.start for span in first]
    kept = [*first]
    for span in second:
        after = bisect_left(starts, span.end)
        if after == 0 or first[after - 1].end <= span.start:
            kept.append(span)
    return sorted(kept, key=lambda span: span.start)
