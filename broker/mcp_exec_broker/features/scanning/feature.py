"""Scanning as a feature of the broker: one scanner for all calls, and the tokens of each execution and caller."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from prometheus_client import CollectorRegistry

from mcp_exec_api.tool_server import Scan
from mcp_exec_broker.core.calls.scanner import AccountScanner
from mcp_exec_broker.core.feature import Feature, Foundation
from mcp_exec_broker.features.scanning.scanner import Scanner
from mcp_exec_broker.features.scanning.tokenizer import Tokenizer, TokenizerCache, check_tokens


@dataclass(frozen=True)
class _TokenizingAccountScanner:
    """The scanner of an account's calls, with its tokens."""

    scanner: Scanner
    tokenizer: Tokenizer

    def detokenize(self, value: Any) -> Any:
        return self.tokenizer.detokenize(value)

    def check_tokens(self, text: str) -> None:
        check_tokens(text)

    async def scan_arguments(self, value: Any, scan: Scan, *, size: int) -> Any:
        return (await self.scanner.scan_arguments(value, scan, self.tokenizer, size=size)).value

    async def scan_result(self, value: Any, scan: Scan, *, size: int = 0) -> Any:
        return (await self.scanner.scan_result(value, scan, self.tokenizer, size=size)).value


class TokenizingScanner(Scanner):
    """Scanner that keeps the tokens of each account."""

    def __init__(self, *, registry: CollectorRegistry) -> None:
        super().__init__(registry=registry)
        self.tokenizers = TokenizerCache()

    def open_account(self, account: str) -> AccountScanner:
        """Return the scanner of an account's calls, with the tokens of its earlier ones."""
        return _TokenizingAccountScanner(self, self.tokenizers.get_or_create(account))


class ScanningFeature(Feature):
    """Scans all calls, as their ToolServers require, and what audit and approvals show."""

    def __init__(self, scanner: TokenizingScanner) -> None:
        self._tokenizers = scanner.tokenizers
        self.scanner = scanner

    @classmethod
    @asynccontextmanager
    async def open(cls, foundation: Foundation) -> AsyncIterator[Self]:
        """Open the scanner, and stop its threads at the end."""
        scanner = TokenizingScanner(registry=foundation.metrics.registry)
        try:
            yield cls(scanner)
        finally:
            scanner.close()

    async def close_execution(self, uid: str, *, grant_seconds: int) -> None:
        """Drop the tokens of the execution."""
        self._tokenizers.close_execution(uid)
