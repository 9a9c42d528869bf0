"""What the operator, the gateway and the broker share."""
