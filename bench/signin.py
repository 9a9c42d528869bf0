"""Cost of the sender of one request: of an API key, and of tokens of an identity provider.

The gateway's own functions find the sender, with the keys of a provider on loopback. A token is verified once, and is
known until it ends. The ways are measured in turn, in microseconds of processor time, because nothing waits.

    python bench/signin.py --json signin.json
"""

import asyncio
import base64
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any, Final, cast

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from harness import parser, percentile, run, table, write_json
from tests.support.issuer import Issuer, rsa_key
from waits import within

from mcp_exec_common.access import OidcIssuer
from mcp_exec_common.api_keys import KEY_PREFIX, digest_key
from mcp_exec_common.process.company_network import CompanyNetwork
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_common.process.outgoing_client import OutgoingClient
from mcp_exec_common.util.addresses import AddressCheck
from mcp_exec_gateway.core.auth.api_keys import ApiKeyStore
from mcp_exec_gateway.core.auth.callers import Authenticator
from mcp_exec_gateway.core.auth.kubernetes_tokens import KubernetesTokens
from mcp_exec_gateway.core.auth.rules import AccessRules
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.signin.tokens import OidcTokens

KEY: Final = KEY_PREFIX + secrets.token_urlsafe(32)
FLOOR: Final = "API key"
LOOPBACK: Final = tuple(map(ip_network, ("127.0.0.0/8", "::1/128")))
START_SECONDS: Final = 30.0
GROUPS: Final = [f"group-{number:03}" for number in range(200)]
"""As many as Entra ID puts into a token."""
Way = Callable[[], str]
"""Returns the credential of the next request."""


@asynccontextmanager
async def open_authenticator(issuer: Issuer) -> AsyncIterator[Authenticator]:
    """Build what authenticates, once it has the issuer's keys."""
    keys = ApiKeyStore()
    entry = json.dumps({"sha256": digest_key(KEY), "namespace": "agents"}).encode()
    keys.on_change({"metadata": {}, "data": {"bench": base64.b64encode(entry).decode()}}, False)
    configured = OidcIssuer.model_validate(issuer.configure())
    tokens = OidcTokens.create([configured], narrows=False)
    (key_set,) = tokens.key_sets.values()
    served = ServedNamespaces(["agents"])
    async with OutgoingClient.open(check=AddressCheck(allowed=LOOPBACK), network=CompanyNetwork()) as client:
        following = asyncio.create_task(key_set.follow(client))
        try:
            async with within(START_SECONDS, "the keys of the issuer"):
                await key_set.find("one")
            yield Authenticator(
                keys=keys,
                tokens=cast(KubernetesTokens, None),  # no token is one of Kubernetes
                sources=[tokens],
                rules=AccessRules(served=served),
                namespaces=served,
            )
        finally:
            following.cancel()


def build_ways(issuer: Issuer) -> dict[str, Way]:
    """Return the ways to authenticate. Tokens are new ones each time, except where the row says otherwise."""
    known, forger, count = issuer.sign(), rsa_key(), iter(range(1_000_000))

    def sign(**claims: Any) -> str:
        return issuer.sign(jti=str(next(count)), **claims)

    return {
        FLOOR: lambda: KEY,
        "token that was verified before": lambda: known,
        "new token, RS256": sign,
        "new token, ES256": lambda: sign(kid="two", alg="ES256"),
        "new token, EdDSA": lambda: sign(kid="three", alg="EdDSA"),
        f"new token, RS256, {len(GROUPS)} groups": lambda: sign(groups=GROUPS),
        "forged token, RS256": lambda: sign(key=forger),
    }


async def measure_once(authenticator: Authenticator, credential: str, *, forged: bool) -> float:
    """Return the microseconds of one sender, found as for each request. Raises RuntimeError for the wrong outcome."""
    start, refused = time.thread_time_ns(), False
    try:
        authenticator.recognizes(credential)
        await authenticator.identify(credential)
    except HttpProblem:
        refused = True
    elapsed = (time.thread_time_ns() - start) / 1000
    if refused is not forged:
        raise RuntimeError(f"{credential[:20]}... is {'refused' if refused else 'accepted'}")
    return elapsed


async def measure(rounds: int) -> dict[str, dict[str, Any]]:
    """Return a row for each way."""
    keys = {
        "one": rsa_key(),
        "two": ec.generate_private_key(ec.SECP256R1()),
        "three": ed25519.Ed25519PrivateKey.generate(),
    }
    samples: dict[str, list[float]] = {}
    async with Issuer(keys=keys).running() as issuer, open_authenticator(issuer) as authenticator:
        ways = build_ways(issuer)
        for name, way in ways.items():  # once before, for what the first use of a library costs
            await measure_once(authenticator, way(), forged=name.startswith("forged"))
        for _ in range(rounds):
            for name, way in ways.items():
                took = await measure_once(authenticator, way(), forged=name.startswith("forged"))
                samples.setdefault(name, []).append(took)
    floor = percentile(samples[FLOOR], 0.5)
    return {
        name: {
            "n": len(found),
            **{f"p{share} us": round(percentile(found, share / 100), 1) for share in (50, 90, 99)},
            "ratio": round(percentile(found, 0.5) / floor, 1),
        }
        for name, found in samples.items()
    }


async def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=1000, help="requests of each way")
    arguments = options.parse_args()
    rows = await measure(arguments.rounds)
    print(table(rows))
    write_json(arguments.json, {"rows": rows})


if __name__ == "__main__":
    run(main())
