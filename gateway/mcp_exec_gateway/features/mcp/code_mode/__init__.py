"""The toolset of `mode=code`: a constant set of tools, whose code calls the tools of the servers."""
