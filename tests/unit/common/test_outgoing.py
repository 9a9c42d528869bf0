"""The authorities that connections to other hosts trust."""

import pytest
from tests.support.certificates import certificates_for

from mcp_exec_common.process.outgoing import MAX_BUNDLE_BYTES, build_client_tls

AUTHORITY, _ = certificates_for("mcp.company.example")
BROKEN = AUTHORITY.replace("MII", "AAA")


def test_a_bundle_is_trusted_in_addition_to_the_systems_authorities() -> None:
    before = build_client_tls().get_ca_certs()
    added = [each for each in build_client_tls(AUTHORITY).get_ca_certs() if each not in before]
    assert [each["subject"] for each in added] == [((("commonName", "mcp-exec tests"),),)]


def test_text_around_certificates_is_ignored() -> None:
    text = f"# Főtanúsítvány\n{AUTHORITY}\n\n# again\n{AUTHORITY}"
    assert len(build_client_tls(text).get_ca_certs()) == len(build_client_tls(AUTHORITY).get_ca_certs())


@pytest.mark.parametrize(
    ("bundle", "said"),
    [
        ("", "has no certificate in PEM: -----BEGIN CERTIFICATE-----"),
        ("-----BEGIN CERTIFICATE-----\n" * 10_000, "has no certificate in PEM: -----BEGIN CERTIFICATE-----"),
        (AUTHORITY + BROKEN, "has a certificate that can't be read, number 2"),
        (AUTHORITY + "é" * (MAX_BUNDLE_BYTES // 2), f"has more than {MAX_BUNDLE_BYTES} bytes"),
    ],
    ids=["empty", "begins only", "broken", "large"],
)
def test_a_bundle_that_cannot_be_used_is_refused_with_the_reason(bundle: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build_client_tls(bundle)
