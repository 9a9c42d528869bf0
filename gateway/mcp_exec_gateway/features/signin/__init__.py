"""Sign-in of people: tokens of identity providers, and what MCP clients have to know to get one."""
