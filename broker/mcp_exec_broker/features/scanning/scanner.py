"""Scanner of arguments and results for secrets and personal data, of any size.

It decodes nothing: data in base64, in compressed form or in images is not detected.
"""

import asyncio
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from mcp_exec_api.tool_server import PersonalDataAction, Scan, SecretAction
from mcp_exec_broker.core.errors import ErrorReason, build_denial, build_rejection
from mcp_exec_broker.features.scanning.detectors import PersonalDataDetector, SecretDetector, Span, TextIndex
from mcp_exec_broker.features.scanning.tokenizer import Tokenizer
from mcp_exec_common.process.metrics import MetricsBase

Result = TypeVar("Result")

_THREAD_BYTES: Final = 4 * 1024
"""Bytes of text that are scanned in a thread, as more delay other calls: 4 KiB of phone numbers take 50 ms."""
_PREFIX_FACTOR: Final = 8
"""Characters scanned of a long text, as a multiple of the characters kept."""


@dataclass(frozen=True, kw_only=True)
class ScannedValue:
    """A JSON value after its scan."""

    value: Any
    findings: dict[str, int]
    """Number of findings by kind, such as `GitHub Token` and `EMAIL`."""


@dataclass(frozen=True, kw_only=True)
class _ScanOptions:
    subject: str
    """`arguments`, `result` or `audit`, for messages and metrics."""
    secrets: SecretAction
    personal: PersonalDataAction
    only_tokenized: bool = False
    """Whether personal data counts only if it has a token already."""


_AUDIT: Final = _ScanOptions(subject="audit", secrets=SecretAction.REDACT, personal=PersonalDataAction.REDACT)


class ScanMetrics(MetricsBase):
    """Metrics of scans."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__("mcp_exec_broker_", registry)
        self.findings = self.counter(
            "findings", "Secrets and personal data that were found, by kind and place.", "kind", "where"
        )


class Scanner:
    """Scanner for secrets and personal data, built once per process."""

    def __init__(self, *, region: str = "US", registry: CollectorRegistry | None = None) -> None:
        self._secret_detector = SecretDetector()
        self._personal_data_detector = PersonalDataDetector(region=region)
        # few threads: they compete with the event loop for the interpreter
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="scan")
        self._findings = ScanMetrics(registry).findings

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def scan_arguments(self, value: Any, scan: Scan, tokenizer: Tokenizer, *, size: int = 0) -> ScannedValue:
        """Return the arguments as they go to the server, detokenized after the scan if `scan.untokenize` is set.

        Large arguments, of about `size` bytes of JSON, are scanned in a thread. Raises ToolCallError: SecretFound,
        PersonalDataFound.
        """
        options = _ScanOptions(
            subject="arguments", secrets=scan.secrets_in_arguments, personal=scan.personal_in_arguments
        )
        scanned = await self._scan(value, options, tokenizer, size=size)
        if not scan.untokenize:
            return scanned
        return ScannedValue(value=tokenizer.detokenize(scanned.value), findings=scanned.findings)

    async def scan_result(self, value: Any, scan: Scan, tokenizer: Tokenizer, *, size: int = 0) -> ScannedValue:
        """Return a result of about `size` bytes of JSON as it goes into the sandbox.

        Raises ToolCallError like `scan_arguments`.

        Values with a token are replaced even if the server's results are not scanned: otherwise a server that echoes
        its arguments would reveal the value behind a token.
        """
        personal, only_tokenized = scan.personal_in_results, False
        if personal is PersonalDataAction.OFF and len(tokenizer):
            personal, only_tokenized = PersonalDataAction.TOKENIZE, True
        options = _ScanOptions(
            subject="result", secrets=scan.secrets_in_results, personal=personal, only_tokenized=only_tokenized
        )
        return await self._scan(value, options, tokenizer, size=size)

    def redact_json(self, value: Any, *, limit: int = 2048) -> str:
        """Return JSON text for audit log and approvals, always redacted, and bounded to `limit` characters."""
        text = json.dumps(value, ensure_ascii=False, default=str)
        if len(text) <= limit:
            redacted = self._redact(value, text)[:limit]
        else:
            prefix = text[: _PREFIX_FACTOR * limit]
            redacted = self._redact(prefix, prefix)[: limit - 1] + "…"
        return redacted.encode("utf-8", "replace").decode()  # lone surrogates cannot be stored

    async def redact_value(self, value: Any, *, size: int) -> Any:
        """Return a JSON value of `size` bytes without secrets and personal data. A large one is scanned in a thread.

        Raises ToolCallError if it is nested too deeply.
        """
        return (await self._scan(value, _AUDIT, Tokenizer(), size=size)).value

    def redact_message(self, text: str) -> str:
        """Return a foreign text, such as an error, without secrets and personal data."""
        return self._redact(text, text)

    def _redact(self, value: Any, text: str) -> str:
        texts = TextIndex(value)
        spans = self._find_spans(texts, _AUDIT, Tokenizer())
        if not spans:
            return text
        redacted = texts.replace((span, f"[REDACTED {span.kind}]") for span in spans)
        return redacted if isinstance(value, str) and value is text else json.dumps(redacted, ensure_ascii=False)

    async def _scan(self, value: Any, options: _ScanOptions, tokenizer: Tokenizer, *, size: int) -> ScannedValue:
        if options.secrets is SecretAction.OFF and options.personal is PersonalDataAction.OFF:
            return ScannedValue(value=value, findings={})
        texts = TextIndex(value) if size < _THREAD_BYTES else await self._run(lambda: TextIndex(value))
        if len(texts.data) < _THREAD_BYTES:
            spans = self._find_spans(texts, options, tokenizer)
        else:
            spans = await self._run(lambda: self._find_spans(texts, options, tokenizer))
        if not spans:
            return ScannedValue(value=value, findings={})
        findings = Counter(span.kind for span in spans)
        for kind, number in findings.items():
            self._findings.labels(kind=kind, where=options.subject).inc(number)
        self._raise_if_blocked(findings, options)
        replacements = [(span, self._build_replacement(texts, span, options, tokenizer)) for span in spans]
        try:
            return ScannedValue(value=texts.replace(replacements), findings=dict(findings))
        except RecursionError as error:
            raise build_rejection(
                ErrorReason.RESULT_TOO_LARGE, f"the {options.subject} are nested too deeply to scan"
            ) from error

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _find_spans(self, texts: TextIndex, options: _ScanOptions, tokenizer: Tokenizer) -> list[Span]:
        """Return the findings in order and without overlaps; secrets take precedence over personal data."""
        secrets = [] if options.secrets is SecretAction.OFF else _remove_overlaps(self._secret_detector.find(texts))
        if options.personal is PersonalDataAction.OFF:
            return secrets
        personal = self._personal_data_detector.find(texts)
        if options.only_tokenized:
            personal = (span for span in personal if tokenizer.has_token(span.kind, texts.get_original(span)))
        return _merge_spans(secrets, _remove_overlaps(personal))

    def _raise_if_blocked(self, findings: Counter[str], options: _ScanOptions) -> None:
        secrets = [kind for kind in findings if kind in self._secret_detector.kinds]
        personal = [kind for kind in findings if kind not in self._secret_detector.kinds]
        is_arguments = options.subject == "arguments"
        subject = "the arguments contain" if is_arguments else "the result was withheld because it contains"
        if secrets and options.secrets is SecretAction.BLOCK:
            raise build_denial(ErrorReason.SECRET_FOUND, f"{subject} likely secrets: {', '.join(secrets)}")
        if personal and options.personal is PersonalDataAction.BLOCK:
            raise build_denial(ErrorReason.PERSONAL_DATA_FOUND, f"{subject} personal data: {', '.join(personal)}")

    def _build_replacement(self, texts: TextIndex, span: Span, options: _ScanOptions, tokenizer: Tokenizer) -> str:
        token = None
        if options.personal is PersonalDataAction.TOKENIZE and span.kind not in self._secret_detector.kinds:
            token = tokenizer.tokenize(span.kind, texts.get_original(span))
        return token or f"[REDACTED {span.kind}]"


def _remove_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order; of overlapping ones the first, and of those the longest."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept


def _merge_spans(first: list[Span], second: list[Span]) -> list[Span]:
    """Return both lists in order, without spans of the second that overlap one of the first."""
    if not first:
        return second
    starts = [span.start for span in first]
    merged = [*first]
    for span in second:
        after = bisect_left(starts, span.end)
        if after == 0 or first[after - 1].end <= span.start:
            merged.append(span)
    return sorted(merged, key=lambda span: span.start)
