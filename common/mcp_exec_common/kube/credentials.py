"""Where the API server is and how a process shows who it is: by the pod's service account, or by a kubeconfig file.

A pod's credentials are three small files (https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/), read
here. For a kubeconfig file, with its many forms, the official client is asked; it is imported then alone, because
its import takes half a second and 60 MB, which a restarted operator does not have.
"""

import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_TOKEN_SECONDS: Final = 60.0
"""How long a token is used before its file is read again: the kubelet renews it long before it expires."""


class CredentialsError(Exception):
    """There are no credentials, or they can't be read; the text says which and what is needed."""


async def _no_token() -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class KubeCredentials:
    """The API server's address, how to trust it, and who calls: a bearer token, a client certificate or both."""

    server: str
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    authorization: Callable[[], Awaitable[str | None]] = _no_token
    """The value of the Authorization header as it is now, such as `Bearer TOKEN`."""

    @classmethod
    async def load(cls, kubeconfig: Path | None) -> Self:
        """By the kubeconfig file, or by the pod's service account where none is given. Raises CredentialsError."""
        return cls.of_pod() if kubeconfig is None else await cls.of_kubeconfig(kubeconfig)

    @classmethod
    def of_pod(cls, *, folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Self:
        """By the service account of the pod that this runs in."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
        token = _TokenFile(folder / "token")
        if not host or not port or not token.path.exists():
            raise CredentialsError("this is no pod with a service account: name a kubeconfig file")
        address = f"[{host}]" if ":" in host else host
        return cls(
            server=f"https://{address}:{port}", ca_file=str(folder / "ca.crt"), authorization=token.authorization
        )

    @classmethod
    async def of_kubeconfig(cls, path: Path) -> Self:
        """By the current context of a kubeconfig file."""
        try:
            from kubernetes.aio import config
            from kubernetes.aio.client import Configuration
        except ImportError as error:
            raise CredentialsError("a kubeconfig file needs the package `kubernetes`") from error
        found = Configuration()
        try:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(path), client_configuration=found
            )
        except config.ConfigException as error:
            raise CredentialsError(f"{path}: {error}") from error
        return cls(
            server=found.host,
            ca_file=found.ssl_ca_cert,
            certificate_file=found.cert_file,
            key_file=found.key_file,
            verify=found.verify_ssl,
            authorization=lambda: found.get_api_key_with_prefix("BearerToken"),
        )

    def address(self) -> str:
        """The server as HOST:PORT, or an empty text where that means another machine elsewhere."""
        found = urlsplit(self.server)
        if not found.hostname or found.hostname in _LOOPBACK:
            return ""
        host = f"[{found.hostname}]" if ":" in found.hostname else found.hostname
        return f"{host}:{found.port or 443}"

    def tls(self) -> ssl.SSLContext:
        """What connections to the server are made with."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file)
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


class _TokenFile:
    """A service account's token, read again once a minute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._value = ""
        self._until = 0.0

    async def authorization(self) -> str:
        if time.monotonic() >= self._until:
            self._value = f"Bearer {self.path.read_text().strip()}"
            self._until = time.monotonic() + _TOKEN_SECONDS
        return self._value
