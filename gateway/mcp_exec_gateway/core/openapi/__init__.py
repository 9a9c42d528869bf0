"""The OpenAPI document: what routes declare, and examples."""
