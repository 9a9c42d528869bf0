"""Reasons of failed connections."""

import asyncio
import socket
import ssl
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_broker.core.upstream.addresses import (
    describe_exit,
    explain_connection_error,
    explain_status,
)
from mcp_exec_broker.core.upstream.errors import redact_excerpt, redact_output
from mcp_exec_common.util import addresses
from mcp_exec_common.util.addresses import AddressRefused

KEY = ConnectionKey(
    host="mcp.invalid",
    port=8443,
    is_ssl=True,
    ssl=True,
    proxy=None,
    proxy_auth=None,
    proxy_headers_hash=None,
    server_hostname=None,
)


def certificate_error() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (
            aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(-2, "Name or service not known")),
            "NameNotResolved",
            "the name mcp.invalid does not resolve: Name or service not known",
        ),
        (
            aiohttp.ClientConnectorError(KEY, ConnectionRefusedError(111, "refused")),
            "ConnectionRefused",
            "nothing listens at mcp.invalid:8443: connection refused",
        ),
        (
            aiohttp.ClientConnectorError(KEY, OSError(113, "No route to host")),
            "Unreachable",
            "no connection at mcp.invalid:8443: No route to host",
        ),
        (
            aiohttp.ClientConnectorError(KEY, AddressRefused("127.0.0.1", "loopback")),
            "AddressRefused",
            "the broker refused the connection at mcp.invalid:8443: the address is loopback",
        ),
        (aiohttp.ConnectionTimeoutError("x"), "Unreachable", "no connection in time"),
        (
            aiohttp.ClientConnectorCertificateError(KEY, certificate_error()),
            "TLSFailed",
            "the certificate at mcp.invalid:8443 is refused: self-signed certificate",
        ),
        (aiohttp.InvalidURL("x"), "InvalidSpec", "spec.url is not a valid URL"),
    ],
)
def test_an_error_of_a_connection_has_a_reason_and_names_the_address(error: Any, reason: str, words: str) -> None:
    assert explain_connection_error(error) == (reason, words)


def test_statuses_of_a_wrong_path_differ_from_those_of_a_failing_server() -> None:
    found = [explain_status(status)[0] for status in (404, 405, 410, 400, 429, 503)]
    assert found == [ServerReason.WRONG_PATH] * 3 + [ServerReason.SERVER_ERROR] * 3


def test_the_end_of_a_command_is_a_code_or_a_signal() -> None:
    assert describe_exit(3) == "the command exited with code 3"
    assert describe_exit(-9) == "the command was ended by SIGKILL, usually for lack of memory"
    assert describe_exit(-100) == "the command was ended by signal 100"


def test_a_line_of_output_has_neither_a_secret_nor_a_line_of_one() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nQ2\n-----END KEY-----\n"
    text = "no such key: MIIEvQIBADAN, Q2 with token-1234"
    found = redact_output(text, [key, "token-1234"], min_length=6, max_chars=500)
    assert found == "no such key: [CREDENTIAL REDACTED], Q2 with [CREDENTIAL REDACTED]"
    assert "token" not in redact_output("x" * 495 + "token-1234", ["token-1234"], min_length=6, max_chars=500)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key sk-live-0123456789abc... was refused", "key [CREDENTIAL REDACTED]... was refused"),
        ("...6789abcdefghij, sk-live", "...[CREDENTIAL REDACTED], sk-live"),
        ("e-012345", "[CREDENTIAL REDACTED]"),
        ("-012345: 7 characters are in many words", "-012345: 7 characters are in many words"),
        ("sk-live-sk-live-0123", "[CREDENTIAL REDACTED]"),
        ("sk-live-6789abcd", "[CREDENTIAL REDACTED]"),
    ],
)
def test_a_line_of_output_has_no_part_of_a_secret_either(text: str, found: str) -> None:
    secret = "sk-live-0123456789abcdefghij"
    assert redact_output(text, [secret], min_length=6, max_chars=500) == found
    assert redact_excerpt(text, [secret], max_chars=500) == found


def test_a_part_of_a_secret_at_the_end_of_an_excerpt_is_redacted_before_the_cut() -> None:
    found = redact_excerpt("x" * 490 + "0123456789abcdef", ["sk-live-0123456789abcdefghij"], max_chars=500)
    assert found == "x" * 490 + "[CREDENTIA"


async def test_a_name_without_an_answer_of_dns_does_not_resolve_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(self: Any, *arguments: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", silent)
    monkeypatch.setattr(addresses, "_RESOLVE_SECONDS", 0.01)
    with pytest.raises(OSError, match=r"no answer of DNS within 0\.01 s"):
        await addresses.TimedResolver().resolve("mcp.invalid")
