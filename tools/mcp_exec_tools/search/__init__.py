"""Search of tools by words."""
