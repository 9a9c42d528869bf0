"""The tool broker: every tool call of every sandbox passes here."""
