"""Values that tests of several processes share."""

from tests.support.pace import paced

SANDBOX_KEY = b"the key of the sandboxes"
POD = "default-real0"
DEADLINE = paced(40)
"""Seconds that a test waits for one thing. What works takes less on a machine where every core has three tests."""
AUDIENCE = "mcp-exec-gateway"
"""Audience of the tokens of identity providers."""
