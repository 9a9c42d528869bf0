"""A certificate authority that lives as long as a test, and a server's certificate of it."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificates_for(host: str, *others: str, days: int = 2) -> tuple[str, str]:
    """The authority's certificate, and one of a server at names or addresses with its key behind it, as PEM."""
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mcp-exec tests")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    ca = (
        _blank(subject=name, issuer=name, key=authority.public_key(), days=days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, hashes.SHA256())
    )
    certificate = (
        _blank(subject=subject, issuer=name, key=server.public_key(), days=days)
        .add_extension(x509.SubjectAlternativeName([_name(each) for each in (host, *others)]), critical=False)
        .sign(authority, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key = server.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ca.public_bytes(pem).decode(), (certificate.public_bytes(pem) + key).decode()


def server_tls(certificate: str, folder: Path) -> ssl.SSLContext:
    """Return the TLS context of a server with a certificate and its key, which are written to a file of the folder."""
    (file := folder / "server.pem").write_text(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _blank(
    *, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
    )
