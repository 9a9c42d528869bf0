"""Tool catalogs and the audit log, as the gateway serves them."""
