"""The cluster: its API server, the leader, keys, definitions and namespaces. Knows no execution."""
