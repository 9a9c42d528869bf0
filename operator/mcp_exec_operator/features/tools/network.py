"""The company's network in the pods of stdio servers: variables with its proxies, and a file with its authorities.

Whoever runs a stdio server can read what its pod has, so the pod gets no credentials of the release: those of a proxy
come from a Secret of the server's namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.settings import BundleSource, Settings

AUTHORITIES: Final = "ca.pem"
"""File that the init container writes next to the bridge: public authorities, and those of the company."""
_BUNDLE_FOLDER: Final = "/mcp-exec-ca"
_BUNDLE_FILE: Final = "ca.crt"
_FILE_VARIABLES: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)
"""Variables with the file of authorities, of OpenSSL, requests, curl, git, AWS' libraries and Node."""
_OWN_HOSTS: Final = ("127.0.0.1", "::1", "$(KUBERNETES_SERVICE_HOST)")
"""The pod itself, and the API server's address as the kubelet knows it when the pod starts."""


@dataclass(frozen=True, kw_only=True)
class ServerNetwork:
    """What the pods of all stdio servers have in common."""

    proxies: Mapping[str, str] = field(default_factory=dict)
    """URLs of proxies by scheme, without credentials."""
    proxy_secret: str = ""
    """Secret of each namespace with the entries `http` and `https`, in place of the URLs."""
    direct_hosts: tuple[str, ...] = ()
    bundle: BundleSource | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> "ServerNetwork":
        """Read it from the operator's settings."""
        urls = {"http": settings.proxy_http, "https": settings.proxy_https}
        return cls(
            proxies={scheme: url for scheme, url in urls.items() if url},
            proxy_secret=settings.servers_proxy_secret,
            direct_hosts=settings.direct_hosts,
            bundle=settings.servers_ca_bundle,
        )

    def list_secrets(self) -> list[str]:
        """Return the Secrets whose change replaces a pod."""
        return [self.proxy_secret] if self.proxy_secret else []

    def build_variables(self, folder: str) -> list[Object]:
        """Return the variables of a server. `folder` has the file of authorities."""
        found: list[Object] = []
        for scheme in ("http", "https") if self.proxy_secret else self.proxies:
            reference = {"valueFrom": {"secretKeyRef": {"name": self.proxy_secret, "key": scheme}}}
            source = reference if self.proxy_secret else {"value": self.proxies[scheme]}
            found += [{"name": name, **source} for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper())]
        if found:
            direct = ",".join((*self.direct_hosts, *_OWN_HOSTS))
            found += [{"name": name, "value": direct} for name in ("no_proxy", "NO_PROXY")]
            found.append({"name": "NODE_USE_ENV_PROXY", "value": "1"})
        if self.bundle is not None:
            found += [{"name": name, "value": f"{folder}/{AUTHORITIES}"} for name in _FILE_VARIABLES]
        return found

    def extend_installer(self, installer: Object) -> Object:
        """Return the init container, which writes the file of authorities."""
        if self.bundle is None:
            return installer
        place = f"{self.bundle.kind} {self.bundle.name}, key {self.bundle.key}"
        options = ["--ca-bundle", f"{_BUNDLE_FOLDER}/{_BUNDLE_FILE}", "--ca-bundle-of", place]
        mount = {"name": "ca-bundle", "mountPath": _BUNDLE_FOLDER, "readOnly": True}
        return installer | {
            "command": [*installer["command"], *options],
            "volumeMounts": [*installer["volumeMounts"], mount],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }

    def build_volumes(self) -> list[Object]:
        """Return the volume of the bundle. A pod without it starts, and the init container says what is missing."""
        if (bundle := self.bundle) is None:
            return []
        source: Object = {"items": [{"key": bundle.key, "path": _BUNDLE_FILE}], "optional": True}
        if bundle.kind == "Secret":
            return [{"name": "ca-bundle", "secret": {"secretName": bundle.name, **source}}]
        return [{"name": "ca-bundle", "configMap": {"name": bundle.name, **source}}]
