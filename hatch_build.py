"""Hook of hatchling: what the wheel `mcp-exec` has of the client.

`pip install .` in a checkout needs no index, so that wheel has all packages. With MCP_EXEC_WHEELS=apart (hack/wheels),
it requires the wheel `mcp-exec-client` of its version instead, so that no file is in both wheels of a release.
"""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

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
