"""The `mcp-exec` command: one module or package per command, which adds itself to the parser.

Modules that are imported with the parser import only the standard library. A command imports the rest when it runs.
"""
