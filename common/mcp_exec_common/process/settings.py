"""What operator, gateway and broker can all be told by their environment, and how it is read."""

import json
import os
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from mcp_exec_api.meta import field_errors

PREFIX: Final = "MCP_EXEC_"
"""What the names of all variables begin with."""


class SettingsError(ValueError):
    """Settings that can't be taken: a line for each, with the name of its variable."""


class ProcessSettings(BaseSettings):
    """The settings that each process has; each field is a variable with the prefix `MCP_EXEC_`.

    An empty variable is one that is not set.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", use_attribute_docstrings=True, env_ignore_empty=True
    )

    namespaces: Annotated[tuple[str, ...], NoDecode, Field(min_length=1)]
    """Namespaces that are served: a comma-separated or JSON list."""
    sandbox_key_file: Path
    """File with the release's key; the sandboxes' tokens, grants and badges are made from it."""
    kubeconfig: Path | None = None
    """Kubeconfig file; empty means the pod's service account."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Records below it are dropped."""

    @classmethod
    def from_environment(cls) -> Self:
        """The settings of this process.

        Raises SettingsError where one is wrong, or where a variable with the prefix names none: a typing error would
        otherwise go unseen.
        """
        known = {PREFIX + name.upper() for name in cls.model_fields}
        unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
        if unknown:
            raise SettingsError(f"unknown settings: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        try:
            return cls()
        except ValidationError as error:
            lines = [f"{PREFIX}{found.field.upper()}: {found.message}" for found in field_errors(error)]
            raise SettingsError("\n".join(lines)) from error

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

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, given: object) -> object:
        return given.lower() if isinstance(given, str) else given
