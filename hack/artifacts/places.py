"""Where releases are published, as hack/places.env or the environment says."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LOCAL: Final = "localhost"
"""The repository of images that nobody has pushed."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The addresses. An empty one is not known."""

    registry: str
    downloads: str
    source: str
    site: str

    @property
    def images(self) -> str:
        """What stands before `/mcp-exec-NAME` in the names of the images."""
        return self.registry or LOCAL


def read_places(registry: str = "") -> Places:
    """Read them; a registry that is given takes precedence."""
    declared = dict(re.findall(r"(?m)^([A-Z_]+)=(.*)$", (ROOT / "hack" / "places.env").read_text()))
    found = {name: os.environ.get(name) or value.strip() for name, value in declared.items()}
    return Places(
        registry=registry or found["RELEASE_REGISTRY"],
        downloads=found["RELEASE_DOWNLOADS"].rstrip("/"),
        source=found["PROJECT_URL"],
        site=found["SITE_URL"].rstrip("/"),
    )
