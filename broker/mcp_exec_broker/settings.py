"""The broker's settings, read once from the environment."""

import json
import os
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from mcp_exec_api.names import BROKER_CONTROL_PORT, BROKER_PORT

PREFIX: Final = "MCP_EXEC_"


class Settings(BaseSettings):
    """All that can be set, by environment variables with the prefix `MCP_EXEC_`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", use_attribute_docstrings=True)

    namespaces: Annotated[tuple[str, ...], NoDecode, Field(min_length=1)]
    """Namespaces whose ToolServers are served: a comma-separated or JSON list."""
    sandbox_key_file: Path
    """File with the release's key: grants, badges and the bridges' tokens are made from it."""
    audit_file: Path = Path("/var/lib/mcp-exec/audit.sqlite")
    """The file of the audit's records."""
    audit_keep_days: Annotated[float, Field(gt=0)] = 30
    """Days that records are kept."""
    audit_keep_bytes: Annotated[int, Field(ge=1024 * 1024)] = 1024**3
    """Bytes that they may take; the oldest go first."""
    kubeconfig: Path | None = None
    """Kubeconfig file; empty means the pod's service account."""
    port: Annotated[int, Field(ge=0, le=65535)] = BROKER_PORT
    """Port of calls from sandboxes."""
    control_port: Annotated[int, Field(ge=0, le=65535)] = BROKER_CONTROL_PORT
    """Port of what operator and gateway ask, of health and metrics."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Records below it are dropped."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 17 * 1024 * 1024
    """The largest body of a call; each server has a bound of its own for arguments."""
    max_calls: Annotated[int, Field(ge=1)] = 1024
    """Calls that may be under way at once, of all executions; more are denied."""
    max_connections: Annotated[int, Field(ge=1)] = 256
    """Connections for single users that are kept open; the one unused for the longest time goes first."""
    secret_seconds: Annotated[float, Field(ge=0, le=600)] = 5
    """Seconds that a Secret is used before it is read again; a server that refuses it makes that happen at once."""
    connect_timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 15
    """Seconds that a server may take until it is connected, and until its tools are listed."""
    idle_seconds: Annotated[float, Field(gt=0)] = 300
    """Seconds without a call after which the connection for a single user is closed."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 3
    """Seconds from SIGTERM in which calls are still taken, while sandboxes learn that this replica goes."""
    shutdown_seconds: Annotated[float, Field(ge=0, le=600)] = 10
    """Seconds after that in which calls that are under way may end."""

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        return json.loads(given) if given.lstrip().startswith("[") else [part.strip() for part in given.split(",")]

    @field_validator("namespaces")
    @classmethod
    def _named(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if not all(given) or len(set(given)) != len(given):
            raise ValueError("each namespace is named, and once")
        return given

    @field_validator("kubeconfig", mode="before")
    @classmethod
    def _none_if_empty(cls, given: object) -> object:
        return given or None

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, given: object) -> object:
        return given.lower() if isinstance(given, str) else given


def load_settings() -> Settings:
    """The settings of this process.

    Raises ValueError where one is wrong, or where a variable with the prefix names none: a typing error would
    otherwise go unseen.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        raise ValueError(f"unknown settings: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    return Settings()
