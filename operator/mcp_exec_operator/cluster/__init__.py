"""The cluster: its API server, the leader, keys, definitions and namespaces. It does not depend on executions."""
