"""The toolsets of `mode=direct`, tools by their own schemas, and of `mode=hybrid`, which has those of code as well."""
