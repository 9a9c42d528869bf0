"""The gateway's settings, read once from the environment."""

import json
import os
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from mcp_exec_api.names import GATEWAY_PORT

PREFIX: Final = "MCP_EXEC_"


class Settings(BaseSettings):
    """All that can be set, by environment variables with the prefix `MCP_EXEC_`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", use_attribute_docstrings=True)

    namespaces: Annotated[tuple[str, ...], NoDecode, Field(min_length=1)]
    """Namespaces that are served: a comma-separated or JSON list."""
    sandbox_key_file: Path
    """File with the key that the sandboxes' bearer tokens are made with."""
    release_namespace: str
    """Namespace of the API keys' Secret, and of the broker's Service."""
    broker_service: str = ""
    """The broker's Service; empty means that there is none, and tools can be neither found nor called."""
    api_keys_secret: str = ""
    """Secret with the API keys; empty means that none are accepted."""
    audience: str = ""
    """Audience that ServiceAccount tokens must have; empty means the API server's own."""
    kubeconfig: Path | None = None
    """Kubeconfig file; empty means the pod's service account."""
    port: Annotated[int, Field(ge=0, le=65535)] = GATEWAY_PORT
    """Port of everything: API, health and metrics."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Records below it are dropped."""
    max_wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 310
    """The longest `wait` that a request may ask for."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=3 * 1024 * 1024)] = 1024 * 1024
    """The largest request body; the API server takes objects of about 1.5 MiB."""
    max_waits: Annotated[int, Field(ge=1)] = 4096
    """Requests that may wait for an execution at once."""
    max_streams: Annotated[int, Field(ge=1)] = 512
    """Event streams that may be open at once."""
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 5
    """Seconds from SIGTERM, in which requests are still taken while load balancers learn that this replica goes."""
    shutdown_seconds: Annotated[float, Field(ge=0, le=600)] = 20
    """Seconds after that, in which waiting requests may still get their whole answer."""

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
