"""Names that more than one part of mcp-exec must agree on: the API group, labels, ports, limits."""

from typing import Final

GROUP: Final = "mcp-exec.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

EXECUTIONS: Final = "codeexecutions"
POOLS: Final = "sandboxpools"
TOOL_SERVERS: Final = "toolservers"

MANAGED_BY: Final = "mcp-exec"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_STATE: Final = f"{GROUP}/state"
LABEL_TEMPLATE: Final = f"{GROUP}/template"
LABEL_EXECUTION: Final = f"{GROUP}/execution"
LABEL_CALLER: Final = f"{GROUP}/caller"
LABEL_VARIANT: Final = f"{GROUP}/variant"
LABEL_TOOL_SERVER: Final = f"{GROUP}/tool-server"
SANDBOX_NAME: Final = "mcp-exec-sandbox"
SANDBOX_CONTAINER: Final = "sandbox"

SUPERVISOR_PORT: Final = 8700
GATEWAY_PORT: Final = 8080
OPERATOR_PORT: Final = 8081
BROKER_PORT: Final = 8082
BROKER_CONTROL_PORT: Final = 8084
"""Health, metrics, and what operator and gateway ask; sandboxes can't reach it."""
BRIDGE_PORT: Final = 8083
"""Where a stdio server's pod takes connections from the broker."""

MAX_CODE_BYTES: Final = 256 * 1024
MAX_CONTEXT_BYTES: Final = 256 * 1024
MAX_TIMEOUT_SECONDS: Final = 300
MAX_OUTPUT_BYTES: Final = 256 * 1024
MAX_TOOL_CALLS: Final = 10_000
MAX_WRAPPERS_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of wrappers that are put into a sandbox."""
DEFAULT_MAX_QUEUED: Final = 1000
"""Executions that may wait for a pod of a pool whose spec says nothing of it."""

ANNOTATION_VARIANT_KEY: Final = f"{GROUP}/variant-key"
"""Of an execution: what it is assigned to a variant by, in the place of its caller."""
ANNOTATION_RESTORE: Final = f"{GROUP}/restore-variant"
"""Of a pool: the variant to put back into rotation, NAME or NAME@ANYTHING; each new value is acted upon once."""
ANNOTATION_CREATED: Final = f"{GROUP}/created-at"
"""When the gateway created an execution, with microseconds, which creationTimestamp lacks."""
