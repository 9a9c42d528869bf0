"""Typed Python wrappers of MCP tools, from what their servers say of them. The standard library alone."""

from mcp_exec_api.tools.wrappers.overlays import Overlay
from mcp_exec_api.tools.wrappers.package import HEADER, catalog_text, files_of, modules_of

__all__ = ["HEADER", "Overlay", "catalog_text", "files_of", "modules_of"]
