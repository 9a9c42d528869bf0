"""Settings that operator, gateway and broker have in common, and how they are read from the environment."""

import os
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from mcp_exec_api.constants import DEFAULT_MAX_STORED, DEFAULT_MAX_STORED_BYTES
from mcp_exec_api.meta import field_errors
from mcp_exec_common.process.company_network import CompanyNetwork
from mcp_exec_common.process.connections import ConnectionLimits
from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.process.namespaces import ENTRY, check_namespaces, split_names
from mcp_exec_common.process.outgoing import PROXY_URL

PREFIX: Final = "MCP_EXEC_"
"""Prefix of all environment variables."""

Seconds = Annotated[int, Field(ge=1, le=3600)]
Days = Annotated[int, Field(ge=1, le=3650)]
NETWORK: Final = "a network without bits of a host, for example 10.0.0.0/8, fd00::/8 or, for one address, 10.1.2.3/32"


def _read_network(value: object) -> object:
    try:
        return ip_network(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"it must be {NETWORK}") from None


Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(_read_network)]
Cidr = Annotated[str, Field(json_schema_extra={"format": "cidr"})]
Cidrs = Annotated[list[Cidr], Field(max_length=64)]

AS_SET: Final = object()
"""Default of a value whose setting has the same."""


@dataclass(frozen=True)
class ChartValue:
    """Metadata of a field of `Settings`: the value of the chart that sets it.

    `make generate` writes the value, its schema and the variable. The field's docstring is the value's text.
    """

    path: str
    """Path of the value, for example `operator.resyncSeconds`. `hack/chart` declares the objects on the path."""
    kind: Any = None
    """Type of the value, if it is not that of the setting: tests use fractions of a second, for example."""
    default: Any = AS_SET
    """Default of the value, if it is not that of the setting."""
    times: int = 1
    """Number that the value is multiplied by: 86,400 if it has days and the setting has seconds."""


class SettingsError(ValueError):
    """Invalid settings: one line for each, with the name of its variable."""


OwnLogLevel = Literal["", "DEBUG", "INFO", "WARNING", "ERROR"]
"""Log level of one process; empty means that of all processes."""


class ProcessSettings(BaseSettings):
    """Settings of every process. Each field is an environment variable with the prefix `MCP_EXEC_`.

    An empty variable counts as not set. Lists are comma-separated. A field with `ChartValue` is a value of the chart.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", use_attribute_docstrings=True, env_ignore_empty=True
    )

    namespaces_folder: Path | None = None
    """Folder with the entry `namespaces`, which is read in place of the variable, and again whenever it changes."""
    namespaces: Annotated[tuple[str, ...], NoDecode, Field(min_length=1, validate_default=True)] = ()
    """Namespaces to serve, as a comma-separated or JSON list."""
    release_namespace: str
    """Namespace of the release. It contains the release's keys, so it is never served."""
    release_secrets: Annotated[tuple[str, ...], NoDecode] = ()
    """Names of Secrets with the release's keys, as a comma-separated or JSON list. No ToolServer may use them."""
    kubeconfig: Path | None = None
    """Kubeconfig file. If not set, the pod's service account is used."""
    metrics: Annotated[bool, ChartValue("metrics.enabled")] = True
    """Serve `/metrics`."""
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], ChartValue("logLevel")] = "INFO"
    """Log level of operator, gateway and broker."""
    own_log_level: OwnLogLevel = ""
    """Log level of this process. Empty means that of all."""
    port_connections: Annotated[int, Field(ge=1, le=100_000)] = 4096
    """Open connections of each port. If there are as many, the one that has waited longest for a request is closed."""
    peer_connections: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Open connections of each port and address. A proxy or an ingress is one address for all of its clients."""
    head_seconds: Annotated[float, Field(gt=0, le=600)] = 10
    """Time limit in seconds for the head of a request."""
    body_seconds: Annotated[float, Field(gt=0, le=600)] = 40
    """Time limit in seconds for the body of a request."""
    write_seconds: Annotated[float, Field(gt=0, le=3600)] = 60
    """Time limit in seconds for a client to read what fills the buffer of a response."""

    @property
    def connection_limits(self) -> ConnectionLimits:
        """The limits on the connections of each port."""
        return ConnectionLimits(
            max_connections=self.port_connections,
            max_per_peer=self.peer_connections,
            head_seconds=self.head_seconds,
            body_seconds=self.body_seconds,
            write_seconds=self.write_seconds,
        )

    @classmethod
    def from_environment(cls) -> Self:
        """Read the settings of this process.

        Raises SettingsError if a value is invalid, or if a variable with the prefix is unknown, because it may be a
        misspelled one.
        """
        known = {PREFIX + name.upper() for name in cls.model_fields}
        unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
        if unknown:
            raise SettingsError(
                f"unknown settings: {', '.join(unknown)}; valid settings are {', '.join(sorted(known))}"
            )
        try:
            return cls()
        except ValidationError as error:
            lines = [f"{PREFIX}{invalid.field.upper()}: {invalid.message}" for invalid in field_errors(error)]
            raise SettingsError("\n".join(lines)) from error

    @property
    def mounted_namespaces(self) -> MountedFolder | None:
        """The folder with the namespaces, if there is one."""
        return MountedFolder(path=self.namespaces_folder) if self.namespaces_folder else None

    @field_validator("namespaces", mode="before")
    @classmethod
    def _read_folder(cls, value: object, info: ValidationInfo) -> object:
        if (folder := info.data.get("namespaces_folder")) is None:
            return value
        try:
            return split_names(MountedFolder(path=folder).read().get(ENTRY, b"").decode())
        except OSError as error:
            raise ValueError(str(error)) from error

    @field_validator("namespaces", "release_secrets", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return split_names(value) if isinstance(value, str) else value

    @field_validator("namespaces")
    @classmethod
    def _check_namespaces(cls, namespaces: tuple[str, ...]) -> tuple[str, ...]:
        return check_namespaces(namespaces)

    @field_validator("release_namespace")
    @classmethod
    def _check_release_namespace(cls, release_namespace: str, info: ValidationInfo) -> str:
        if release_namespace in info.data.get("namespaces", ()):
            raise ValueError(f"{release_namespace} is the release's own namespace and must not be served")
        return release_namespace

    @property
    def process_log_level(self) -> str:
        """Log level of this process: its own, or else that of all."""
        return self.own_log_level or self.log_level

    @field_validator("log_level", "own_log_level", mode="before")
    @classmethod
    def _upper_level(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value


class MountedKeySettings(ProcessSettings):
    """Settings of a process that has the sandbox key in a mounted folder."""

    sandbox_key_folder: Path
    """Folder with the release's keys: `key`, and during a rotation `next-key` or `previous-key`. Supervisor tokens,
    grants and service tokens are derived from them. It is read again when it changes."""


DIRECT_HOST: Final = r"^((\*?\.)?[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[0-9A-Fa-f.:]+(/[0-9]{1,3})?)$"
DirectHosts = Annotated[list[Annotated[str, Field(max_length=253, pattern=DIRECT_HOST)]], Field(max_length=256)]
_PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
_CLUSTER: Final = ("localhost", ".svc")
"""Names of the cluster in each of them, without its domain."""


class ProxySettings(ProcessSettings):
    """The company's forward proxies."""

    proxy_http: Annotated[str, Field(max_length=512, pattern=PROXY_URL), ChartValue("proxy.http")] = ""
    """URL of the proxy of requests to `http://` addresses, without credentials. Empty means none."""
    proxy_https: Annotated[str, Field(max_length=512, pattern=PROXY_URL), ChartValue("proxy.https")] = ""
    """URL of the proxy of requests to `https://` addresses, mostly the same: `http://proxy.example.com:3128`."""
    proxy_no: Annotated[tuple[str, ...], NoDecode, ChartValue("proxy.noProxy", DirectHosts)] = _PRIVATE
    """What is reached without a proxy: networks, addresses, hosts and domains. The networks of the cluster's pods and
    Services must be among them, as they are in these private ones."""
    cluster_domain: Annotated[
        str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"), ChartValue("proxy.clusterDomain")
    ] = "cluster.local"
    """Domain of the cluster. Its names, those that end with `.svc` and those without a dot never use a proxy."""

    @property
    def direct_hosts(self) -> tuple[str, ...]:
        """What is reached without a proxy, the cluster's own names first."""
        return (*_CLUSTER, f".{self.cluster_domain}", *self.proxy_no)

    @field_validator("proxy_no", mode="before")
    @classmethod
    def _split_hosts(cls, value: object) -> object:
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


class OutgoingSettings(ProxySettings):
    """Settings of a process that connects to hosts outside of the release."""

    ca_bundle: Path | None = None
    """File with certificates of authorities in PEM, which are trusted in addition to the system's. It is read again
    when it changes."""
    proxy_folder: Path | None = None
    """Folder with the entries `http` and `https`: URLs with credentials, in place of those of the settings. It is read
    again when it changes."""

    def read_network(self) -> CompanyNetwork:
        """Return the authorities and proxies. Raises OSError, and ValueError if they are unusable."""
        return CompanyNetwork(
            bundle=self.ca_bundle,
            proxy_folder=self.proxy_folder,
            proxies={"http": self.proxy_http, "https": self.proxy_https},
            direct=self.direct_hosts,
        )

    @field_validator("proxy_folder")
    @classmethod
    def _check_proxy_folder(cls, path: Path | None) -> Path | None:
        try:
            CompanyNetwork(proxy_folder=path)
        except OSError as error:
            raise ValueError(str(error)) from error
        return path

    @field_validator("ca_bundle")
    @classmethod
    def _check_ca_bundle(cls, path: Path | None) -> Path | None:
        try:
            CompanyNetwork(bundle=path)
        except OSError as error:
            raise ValueError(str(error)) from error
        except ValueError as error:
            raise ValueError(f"{path and path.parent}: {error}") from error
        return path


class ExecutionSettings(ProcessSettings):
    """Settings of the processes that serve executions: the operator and the gateway."""

    broker_service: str = ""
    """The broker's Service in the release's namespace. If empty, no execution has tools."""
    accounts_proven: bool = False
    """Whether admission policies force `mcp-exec.dev/created-by` to be the account that created an object. Without
    them, what is created past the gateway belongs to nobody."""
    max_stored: Annotated[int, Field(ge=1, le=1_000_000), ChartValue("maxStored")] = DEFAULT_MAX_STORED
    """Executions that each namespace may store. Finished ones count until they are deleted. If finished ones take more
    than three quarters of it, the oldest are deleted before their TTL; beyond it, the gateway refuses new ones."""
    max_stored_bytes: Annotated[int, Field(ge=1024 * 1024), ChartValue("maxStoredBytes")] = DEFAULT_MAX_STORED_BYTES
    """Bytes that the executions of each namespace may take in etcd, by the same rule. The sum of all namespaces must be
    less than etcd's quota, which is 2 GiB by default."""
