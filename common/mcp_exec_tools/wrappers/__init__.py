"""Typed Python wrappers of MCP tools, from what their servers say of them. The standard library alone."""

from mcp_exec_tools.catalog import modules_of
from mcp_exec_tools.overlays import Overlay
from mcp_exec_tools.wrappers.package import HEADER, catalog_text, files_of

__all__ = ["HEADER", "Overlay", "catalog_text", "files_of", "modules_of"]
