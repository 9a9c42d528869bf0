"""Overlays: what users know servers by, added to what the servers have.

An overlay is a folder with an `overlay.json`:

    {"needs": ["execute_sql"],
     "aliases": {"run_sql": "execute_sql"},
     "calls": {"create_issue": {"tool": "issue_write", "arguments": {"method": "create"}, "summary": "...",
         "parameters": ["owner", "repo", "title"], "required": ["owner", "repo", "title"]}},
     "functions": {"compare_libraries": {"needs": ["query-docs"], "summary": "...", "input_schema": {...}}},
     "spellings": {"search_code": {"q": "query"}},
     "results": {"execute_sql": {"format": "untrusted_data", "output_schema": {"type": "array"}}}}

An alias is another name of a tool. A call is a tool with fixed arguments. A function is Python source in
`<function>.py.in`. `spellings` are other names of a tool's parameters. `results` names the format of a tool whose
results wrap a value in text, and the schema of the value.

An overlay names no server. It adds to every server that has the tools that it needs, and a tool or parameter that
already has such a name keeps it.
"""

from mcp_exec_tools.overlays.overlay import (
    AddedFunction,
    Additions,
    ComposedFunction,
    Overlay,
    ResultOverlay,
    ToolCall,
    apply_overlays,
    load_shipped,
    read_result,
)

__all__ = [
    "AddedFunction",
    "Additions",
    "ComposedFunction",
    "Overlay",
    "ResultOverlay",
    "ToolCall",
    "apply_overlays",
    "load_shipped",
    "read_result",
]
