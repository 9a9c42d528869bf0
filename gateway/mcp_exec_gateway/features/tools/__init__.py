"""Tool catalogs and audit records, read from the broker."""
