"""What an API server with CEL refuses: rules of the CRDs, and the chart's admission policies."""
