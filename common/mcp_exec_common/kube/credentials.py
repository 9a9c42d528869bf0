"""Address of the API server and credentials for it, from the pod's service account or from a kubeconfig file.

A pod's credentials are three small files (https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/), read
here. A kubeconfig file has many forms, so the official client reads it. That client is imported only then: its import
takes half a second and 60 MB, which would delay a restarted operator.
"""

import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_TOKEN_SECONDS: Final = 60.0
"""Time between two reads of the token file. The kubelet renews the token long before it expires."""


class CredentialsError(Exception):
    """Credentials that are missing or unreadable. The message names them and what is needed."""


async def _no_token() -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class KubeCredentials:
    """Address of the API server, its CA, and the client's bearer token, certificate or both."""

    server: str
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    namespace: str | None = None
    """Namespace of the kubeconfig's context; None if it names none."""
    authorization: Callable[[], Awaitable[str | None]] = _no_token
    """Returns the current value of the Authorization header, such as `Bearer TOKEN`, or None."""
    impersonation: Sequence[tuple[str, str]] = ()
    """Headers of the user that the kubeconfig acts as
    (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation)."""

    @classmethod
    async def load(cls, kubeconfig: Path | None, *, context: str | None = None) -> Self:
        """Load a kubeconfig file, or if it is None, the pod's service account. Raises CredentialsError."""
        return cls.from_service_account() if kubeconfig is None else await cls.from_kubeconfig(kubeconfig, context)

    @classmethod
    def from_service_account(
        cls, *, folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ
    ) -> Self:
        """Read the service account of this process's pod."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
        token = _TokenFile(folder / "token")
        if not host or not port or not token.path.exists():
            raise CredentialsError("no service account found: run in a pod that has one, or set a kubeconfig file")
        address = f"[{host}]" if ":" in host else host
        return cls(
            server=f"https://{address}:{port}", ca_file=str(folder / "ca.crt"), authorization=token.authorization
        )

    @classmethod
    async def from_kubeconfig(cls, path: Path, context: str | None = None) -> Self:
        """Read a context of a kubeconfig file, by default the current one. Raises CredentialsError."""
        try:
            import yaml
            from kubernetes.aio import config
            from kubernetes.aio.client import Configuration
        except ImportError as error:
            raise CredentialsError("reading a kubeconfig file needs the Python package `kubernetes`") from error
        configuration = Configuration()
        try:
            loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(path), context=context, client_configuration=configuration
            )
            acting = loader.current_context["context"]
            text = path.read_bytes()  # noqa: ASYNC240 # a small file, which the library reads like this, too
            impersonation = _read_impersonation(yaml.safe_load(text), user=acting.get("user"))
        except (config.ConfigException, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
            # the library expects the form of a kubeconfig in what it has parsed
            raise CredentialsError(f"{path} is not a valid kubeconfig: {error}") from error
        return cls(
            server=configuration.host,
            ca_file=configuration.ssl_ca_cert,
            certificate_file=configuration.cert_file,
            key_file=configuration.key_file,
            verify=configuration.verify_ssl,
            namespace=acting.get("namespace"),
            impersonation=impersonation,
            authorization=lambda: configuration.get_api_key_with_prefix("BearerToken"),
        )

    def address(self) -> str:
        """Return the server as HOST:PORT, or an empty string for a loopback address, which pods cannot use."""
        url = urlsplit(self.server)
        if not url.hostname or url.hostname in _LOOPBACK:
            return ""
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        return f"{host}:{url.port or 443}"

    def build_tls_context(self) -> ssl.SSLContext:
        """Build the TLS context for connections to the server."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file)
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def _read_impersonation(kubeconfig: Mapping[str, Any], *, user: str) -> list[tuple[str, str]]:
    """Return the impersonation headers of a user of a kubeconfig. The official client does not read them."""
    found = next((each.get("user") or {} for each in kubeconfig.get("users") or () if each["name"] == user), {})
    headers = [("Impersonate-User", found.get("as")), ("Impersonate-Uid", found.get("as-uid"))]
    headers += [("Impersonate-Group", group) for group in found.get("as-groups") or ()]
    for key, values in (found.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    return [(name, str(value)) for name, value in headers if value]


class _TokenFile:
    """Token of a service account, read again once a minute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._value = ""
        self._until = 0.0

    async def authorization(self) -> str:
        if time.monotonic() >= self._until:
            self._value = f"Bearer {self.path.read_text().strip()}"
            self._until = time.monotonic() + _TOKEN_SECONDS
        return self._value
