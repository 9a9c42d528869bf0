"""The version of the release: of wheel, chart and images, and what answers and metrics say. Nothing else declares it.

What a version promises is in docs/platform/versions.md. `make release` changes it.
"""

from mcp_exec_api.meta import Model

RELEASE = "0.1.0"


class ReleaseVersion(Model):
    """Version of a gateway, and what it speaks."""

    version: str
    """Version of the release, as SemVer."""
    api_versions: list[str]
    """API versions of the resources that it reads and writes, such as `mcp-exec.dev/v1beta1`."""
    mcp_revisions: list[str]
    """Revisions of MCP that `/mcp` speaks, oldest first."""
