"""The API server by plain HTTP: what it says of a write, in its own words."""

import ssl
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.support import Cluster
from tests.support.pace import paced

_SECONDS = paced(60)


@pytest.fixture(scope="session")
def server(installed: Cluster) -> Iterator[httpx.Client]:
    """A client with the credentials of the kubeconfig's user, who may impersonate everybody."""
    settings = installed.objects.api.configuration
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    token = settings.get_api_key_with_prefix("authorization")
    headers = {"Authorization": token} if token else {}
    with httpx.Client(
        base_url=settings.host, verify=context, headers=headers, timeout=_SECONDS, trust_env=False
    ) as client:
        yield client
