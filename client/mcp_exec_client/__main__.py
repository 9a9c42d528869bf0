"""The `mcp-exec` command."""

from mcp_exec_client.cli.start import main

if __name__ == "__main__":
    main()
