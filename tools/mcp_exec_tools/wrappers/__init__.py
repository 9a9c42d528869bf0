"""Typed wrappers of MCP tools, generated from catalogs. Imports the standard library only."""

from mcp_exec_tools.catalog import assign_modules
from mcp_exec_tools.overlays import Overlay
from mcp_exec_tools.wrappers.package import HEADERS, build_files, format_catalog
from mcp_exec_tools.wrappers.typescript.package import format_index

__all__ = ["HEADERS", "Overlay", "assign_modules", "build_files", "format_catalog", "format_index"]
