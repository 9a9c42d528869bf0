"""Records of finished executions, which outlive them."""
