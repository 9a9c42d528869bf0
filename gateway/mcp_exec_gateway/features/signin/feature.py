"""Registration of sign-in."""

import asyncio
from typing import Final

from mcp_exec_common.process.outgoing import build_client_tls
from mcp_exec_common.process.outgoing_client import OutgoingClient
from mcp_exec_common.util.addresses import AddressCheck
from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.features.signin.resource import ProtectedResource, router
from mcp_exec_gateway.features.signin.tokens import OidcTokens


def build(core: Dependencies) -> None:
    """Build what verifies tokens, if there are issuers."""
    settings = core.settings
    if not settings.oidc_issuers:
        return
    tokens = OidcTokens.create(settings.oidc_issuers, narrows=settings.oidc_narrow_by_scopes)
    bundles = settings.read_ca_bundles()
    check = AddressCheck(allowed=settings.oidc_allowed_addresses, api_server=core.kube.credentials.server)

    async def follow_keys() -> None:
        tls = settings.build_client_tls()
        async with (
            OutgoingClient.open(check=check, proxies=settings.read_proxies(), tls=tls) as client,
            asyncio.TaskGroup() as group,
        ):
            for key_set in tokens.key_sets.values():
                issuer = key_set.issuer
                own = build_client_tls(*bundles, *filter(None, [issuer.ca]))
                group.create_task(key_set.follow(client, own), name=f"keys of {issuer.alias}")

    core.extensions.token_sources.append(tokens)
    core.extensions.tasks["keys of issuers"] = follow_keys
    resource = ProtectedResource(
        issuers=tuple(tokens.key_sets), public_url=settings.public_url, scopes=settings.oidc_scopes
    )
    core.extensions.challenges.append(resource.challenge)
    core.add(resource)


SIGN_IN: Final = Feature(build=build, routers=(router,))
