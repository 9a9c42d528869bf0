"""Code that the operator, the gateway and the broker share."""
