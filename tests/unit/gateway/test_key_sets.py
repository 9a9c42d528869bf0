"""Keys of a JWK set that may verify tokens."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.support.issuer import publish, rsa_key

from mcp_exec_gateway.features.signin.key_sets import parse_key_set

RSA = publish(rsa_key(), "a")


def encode(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8, "big")).decode().rstrip("=")


@pytest.mark.parametrize(
    ("jwk", "algorithms"),
    [
        (RSA, {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        (RSA | {"alg": "PS256"}, {"PS256"}),
        (publish(ec.generate_private_key(ec.SECP256R1()), "a"), {"ES256"}),
        (publish(ec.generate_private_key(ec.SECP384R1()), "a"), {"ES384"}),
        (publish(ec.generate_private_key(ec.SECP521R1()), "a"), {"ES512"}),
        (publish(ed25519.Ed25519PrivateKey.generate(), "a"), {"EdDSA"}),
    ],
)
def test_a_key_verifies_the_algorithms_of_its_type(jwk: dict[str, Any], algorithms: set[str]) -> None:
    assert parse_key_set({"keys": [jwk]})["a"].algorithms == algorithms


@pytest.mark.parametrize(
    "jwk",
    [
        {"kid": "x", "kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
        RSA | {"kid": None},
        RSA | {"kid": ""},
        RSA | {"kid": "k" * 257},
        RSA | {"kid": ["x"]},
        RSA | {"use": "enc"},
        RSA | {"alg": "HS256"},
        RSA | {"alg": "none"},
        RSA | {"alg": "ES256"},
        RSA | {"kty": ["RSA"]},
        RSA | {"kty": "EC", "crv": "P-256"},
        RSA | {"n": 65537},
        RSA | {"n": "A" * 1_000_000},
        RSA | {"n": ""},
        RSA | {"e": encode(1 << 4096)},
        RSA | {"n": encode((1 << 1023) + 1)},
        publish(rsa.generate_private_key(public_exponent=65537, key_size=1024), "x"),
        publish(ec.generate_private_key(ec.SECP256K1()), "x"),
        publish(ec.generate_private_key(ec.SECP256R1()), "x") | {"x": encode(5)},
        publish(ec.generate_private_key(ec.SECP256R1()), "x") | {"crv": "P-384"},
        publish(ed25519.Ed25519PrivateKey.generate(), "x") | {"x": "AAAA"},
        "x",
        None,
    ],
)
def test_a_key_that_can_not_verify_safely_is_skipped_and_the_others_stay(jwk: Any) -> None:
    assert list(parse_key_set({"keys": [jwk, RSA | {"kid": "good"}]})) == ["good"]


def test_a_second_key_with_an_id_does_not_replace_the_first() -> None:
    other = publish(ec.generate_private_key(ec.SECP256R1()), "a")
    assert "RS256" in parse_key_set({"keys": [RSA, other]})["a"].algorithms


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, {"keys": []}, {"keys": [RSA] * 65}, {"keys": [1]}])
def test_a_document_without_usable_keys_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="key"):
        parse_key_set(document)
