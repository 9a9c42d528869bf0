"""An identity provider on loopback, with TLS of a private authority: discovery, keys, and tokens that it signs."""

import json
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.support.certificates import certificates_for
from tests.support.constants import AUDIENCE

DISCOVERY: Final = "/.well-known/openid-configuration"
KEYS: Final = "/keys"

Handler = Callable[[web.Request], web.StreamResponse | Awaitable[web.StreamResponse]]


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def publish(key: Any, key_id: str, **fields: Any) -> dict[str, Any]:
    """Return the public part of a key as an issuer lists it."""
    kind = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    algorithm: Any = next((each for base, each in kind.items() if isinstance(key, base)), OKPAlgorithm)
    return {"kid": key_id, "use": "sig", **json.loads(algorithm.to_jwk(key.public_key())), **fields}


@dataclass
class Issuer:
    """The provider. Its keys and answers may be replaced while it runs."""

    url: str = "https://issuer.test"
    ca: str = ""
    keys: dict[str, Any] = field(default_factory=lambda: {"one": rsa_key()})
    answers: dict[str, Handler] = field(default_factory=dict)
    """Answers in place of its own, by path."""
    requests: list[str] = field(default_factory=list)

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        made = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": now + 600, "nbf": now, "iat": now} | changes
        return {name: value for name, value in made.items() if value is not None}

    def sign(
        self, *, key: Any = None, kid: str | None = "one", alg: str = "RS256", header: Any = None, **changes: Any
    ) -> str:
        """Return a token. A claim that is None is left out. `header` has further parameters."""
        headers = ({} if kid is None else {"kid": kid}) | (header or {})
        signing = self.keys[kid or "one"] if key is None else key
        return jwt.encode(self.claims(**changes), signing, algorithm=alg, headers=headers)

    def configure(self, alias: str = "corp", **changes: Any) -> dict[str, Any]:
        """Return the issuer as the gateway's settings have it."""
        return {"alias": alias, "url": self.url, "audience": AUDIENCE, "ca": self.ca} | changes

    def list_keys(self) -> dict[str, Any]:
        return {"keys": [publish(key, key_id) for key_id, key in self.keys.items()]}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        if (given := self.answers.get(request.path)) is not None:
            answer = given(request)
            return await answer if isinstance(answer, Awaitable) else answer
        if request.path == DISCOVERY:
            return web.json_response({"issuer": self.url, "jwks_uri": self.url + KEYS})
        return web.json_response(self.list_keys()) if request.path == KEYS else web.Response(status=404)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Issuer"]:
        """Serve it at a port of loopback, by a name."""
        self.ca, pem = certificates_for("localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
        runner = web.ServerRunner(web.Server(self.answer))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.url = f"https://localhost:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()
