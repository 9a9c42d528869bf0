"""Registration of sign-in."""

import asyncio
from typing import Final

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
    tokens = OidcTokens.create(
        settings.oidc_issuers, narrows=settings.oidc_narrow_by_scopes, scopes=settings.oidc_scopes
    )
    network = settings.read_network()
    check = AddressCheck(allowed=settings.oidc_allowed_addresses, api_server=core.kube.credentials.server)

    async def follow_keys() -> None:
        async with OutgoingClient.open(check=check, network=network) as client, asyncio.TaskGroup() as group:
            group.create_task(network.follow(), name="company's network")
            for key_set in tokens.key_sets.values():
                group.create_task(key_set.follow(client), name=f"keys of {key_set.issuer.alias}")

    core.extensions.token_sources.append(tokens)
    core.extensions.tasks["keys of issuers"] = follow_keys
    resource = ProtectedResource(
        issuers=tuple(tokens.key_sets), public_url=settings.public_url, scopes=settings.oidc_scopes
    )
    core.extensions.challenges.append(resource.challenge)
    core.add(resource)


SIGN_IN: Final = Feature(build=build, routers=(router,))
