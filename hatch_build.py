"""Hooks of hatchling: the metadata of both wheels, and what the wheel `mcp-exec` has of the client.

`pip install .` in a checkout needs no index, so that wheel has all packages. With MCP_EXEC_WHEELS=apart (hack/wheels),
it requires the wheel `mcp-exec-client` of its version instead, so that no file is in both wheels of a release.
"""

import os
import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.version import Version

ROOT = Path(__file__).parent
CLASSIFIERS = (
    "Development Status :: 4 - Beta",
    "Environment :: Console",
    "Framework :: AsyncIO",
    "Intended Audience :: Developers",
    "Intended Audience :: System Administrators",
    "Operating System :: POSIX",
    "Programming Language :: Python :: 3 :: Only",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Topic :: Software Development :: Libraries",
    "Typing :: Typed",
)

CLIENT = ("tools/mcp_exec_tools", "crds/mcp_exec_api", "common/mcp_exec_common", "client/mcp_exec_client")


class ClientHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the client's packages, or the requirement of their wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them to a wheel; an editable installation has the folders of the checkout."""
        if version != "standard":
            return
        if os.environ.get("MCP_EXEC_WHEELS") == "apart":
            build_data["dependencies"].append(f"mcp-exec-client=={self.metadata.version}")
        else:
            build_data["force_include"].update({f"{self.root}/{path}": path.rpartition("/")[2] for path in CLIENT})


class MetadataHook(MetadataHookInterface):
    """Sets what both wheels say of the project. Addresses are those of hack/places.env, without the empty ones."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the fields that pyproject.toml calls dynamic."""
        (release,) = re.findall(r'RELEASE = "(.+?)"', (ROOT / "crds/mcp_exec_api/wire/version.py").read_text())
        places = runpy.run_path(str(ROOT / "hack/artifacts/places.py"))["read_places"]()
        urls = {"Documentation": places.site, "Repository": places.source}
        metadata["version"] = str(Version(release))  # the normal form: 0.2.0rc1
        metadata["urls"] = {name: url for name, url in urls.items() if url}
        metadata["maintainers"] = [{"name": "mcp-exec"}]
        metadata["classifiers"] = list(CLASSIFIERS)
