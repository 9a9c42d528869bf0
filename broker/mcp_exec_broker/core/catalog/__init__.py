"""The tools of each ToolServer: listed, cached on disk, and published in its status."""
